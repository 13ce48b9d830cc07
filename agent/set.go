package agent

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"cofferdam"
)

//go:embed adapters/*.toml
var embedded embed.FS

// Limits of adapters that an operator adds.
const (
	maxAdapters    = 64        // in one folder
	maxAdapterFile = 256 << 10 // bytes of one
	maxEntries     = 64        // of each list of an adapter
)

// Set is the adapters of an installation. The zero Set has the ones that come
// with the program. It does not change and is safe for concurrent use.
type Set struct {
	added map[string]Adapter
}

// Read returns the adapters that come with the program and those of a folder,
// one file NAME.toml each; other files are ignored. One of the folder takes the
// place of one with the same name. The error names file, line and reason.
func Read(dir string) (Set, error) {
	s := Set{added: map[string]Adapter{}}
	files, err := os.ReadDir(dir)
	if err != nil {
		return s, wrong(dir, 0, err.Error())
	}
	for _, f := range files {
		file := filepath.Join(dir, f.Name())
		name, ok := strings.CutSuffix(f.Name(), ".toml")
		if !ok {
			continue
		}
		if len(s.added) == maxAdapters {
			return s, wrong(dir, 0, fmt.Sprintf("it holds more than %d adapters", maxAdapters))
		}
		text, err := readFile(file)
		if err != nil {
			return s, wrong(file, 0, err.Error())
		}
		a, err := parse(file, text)
		if err != nil {
			return s, err
		}
		if a.Name != name {
			return s, wrong(file, line(text, "name"), fmt.Sprintf("it holds the adapter %q and must be called %s.toml", a.Name, a.Name))
		}
		s.added[name] = a
	}
	return s, nil
}

// readFile reads a plain file that is not too large.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is not a plain file"))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAdapterFile+1))
	if err == nil && len(text) > maxAdapterFile {
		err = fmt.Errorf("it is larger than %d bytes", maxAdapterFile)
	}
	return text, err
}

// Names returns the names of all adapters, sorted.
func (s Set) Names() []string {
	files, err := embedded.ReadDir("adapters")
	if err != nil {
		panic("reading the embedded folder adapters: " + err.Error()) // cannot happen: the compiler embedded it
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".toml"))
	}
	for name := range s.added {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Load returns the adapter with that name; NotFound if there is none.
func (s Set) Load(name string) (Adapter, error) {
	if a, ok := s.added[name]; ok {
		return a, nil
	}
	if !slices.Contains(s.Names(), name) {
		return Adapter{}, &cofferdam.Error{
			Op: "agent.Load", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("agent %q", name),
			Reason: "there is no such agent", Hint: "choose one of: " + strings.Join(s.Names(), ", "),
		}
	}
	file := "adapters/" + name + ".toml"
	text, err := embedded.ReadFile(file)
	if err != nil {
		return Adapter{}, fmt.Errorf("reading adapter %s: %w", name, err)
	}
	return parse(file, text)
}

// Added says whether an adapter is from the folder.
func (s Set) Added(name string) bool {
	_, ok := s.added[name]
	return ok
}

// parse reads one adapter, judges it, and tries each of its templates.
func parse(file string, text []byte) (Adapter, error) {
	var a Adapter
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&a); err != nil {
		return a, unreadable(file, err)
	}
	if key, why := a.judge(); why != "" {
		return a, wrong(file, line(text, key), key+": "+why)
	}
	if err := a.try(); err != nil {
		return a, wrong(file, 0, err.Error())
	}
	return a, nil
}

// unreadable says where the text is not what it should be.
func unreadable(file string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		row, _ := strict.Errors[0].Position()
		return wrong(file, row, fmt.Sprintf("%s: there is no such setting", strings.Join(strict.Errors[0].Key(), ".")))
	}
	var broken *toml.DecodeError
	if errors.As(err, &broken) {
		row, _ := broken.Position()
		return wrong(file, row, strings.TrimPrefix(broken.Error(), "toml: "))
	}
	return wrong(file, 0, err.Error())
}

// line finds the line of a setting, from 1; 0 if it is not there.
func line(text []byte, key string) int {
	form := regexp.MustCompile(`^\s*(\[\[\s*)?"?` + regexp.QuoteMeta(key) + `"?\s*(=|\]\])`)
	for i, l := range bytes.Split(text, []byte("\n")) {
		if form.Match(l) {
			return i + 1
		}
	}
	return 0
}

func wrong(file string, row int, reason string) error {
	subject := "adapter " + file
	if row > 0 {
		subject += fmt.Sprintf(", line %d", row)
	}
	return &cofferdam.Error{
		Op: "agent.Read", Kind: cofferdam.Invalid, Subject: subject, Reason: reason,
		Hint: "mend the file; docs/agents.md has an example",
	}
}

var (
	nameForm     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	versionForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	providerForm = regexp.MustCompile(`^(anthropic|openai|gemini)$`)
	allowForm    = regexp.MustCompile(`^(preset:)?[A-Za-z0-9.*-]+(:[0-9]{1,5})?$`)
)

// judge returns the setting that is wrong, and why; "" if all is well.
func (a Adapter) judge() (key, why string) {
	switch {
	case !nameForm.MatchString(a.Name):
		return "name", "it must be 1 to 32 small letters, digits and dashes"
	case a.Title == "" || len(a.Title) > 100:
		return "title", "it must have 1 to 100 bytes"
	case a.Version != "" && !versionForm.MatchString(a.Version):
		return "version", "it must be up to 64 letters, digits, dots, dashes and pluses"
	case a.Brain && (len(a.Argv) > 0 || a.Shell != "" || a.Stdin != "" || len(a.Resume) > 0 || len(a.Files) > 0 || a.Reader != ""):
		return "brain", "what runs in the server has no argv, shell, stdin, resume, file or reader"
	case !a.Brain && (len(a.Argv) == 0) == (a.Shell == ""):
		return "argv", "it needs one of argv and shell"
	case !a.Brain && dialectOf(a.Reader) == nil:
		return "reader", fmt.Sprintf("there is no reader %q; known are %s", a.Reader, strings.Join(readers, ", "))
	case len(a.Resume) > 0 && a.Reader == lines:
		return "resume", "the reader lines finds no name of a conversation"
	}
	for key, list := range map[string][]string{"providers": a.Providers, "setup": a.Setup, "allow": a.Allow, "argv": a.Argv, "resume": a.Resume, "env": a.Env} {
		if len(list) > maxEntries {
			return key, fmt.Sprintf("it has more than %d entries", maxEntries)
		}
	}
	return a.judgeParts()
}

func (a Adapter) judgeParts() (key, why string) {
	for _, p := range a.Providers {
		if !providerForm.MatchString(p) {
			return "providers", fmt.Sprintf("%q is none of anthropic, openai, gemini", p)
		}
	}
	for _, h := range a.Allow {
		if !allowForm.MatchString(h) {
			return "allow", fmt.Sprintf("%q is neither HOST[:PORT] nor preset:NAME", h)
		}
	}
	if len(a.Files) > maxEntries || len(a.Contacts) > maxEntries {
		return "file", fmt.Sprintf("more than %d tables", maxEntries)
	}
	for _, f := range a.Files {
		if below, ok := strings.CutPrefix(f.Path, "~/"); !ok || !filepath.IsLocal(below) || filepath.Clean(below) != below || below == "." {
			return "path", fmt.Sprintf("%q is not a plain path below ~/", f.Path)
		}
	}
	for _, c := range a.Contacts {
		if c.Host == "" || c.Why == "" || c.Closed == "" {
			return "contact", "each needs host, why and closed"
		}
	}
	return "", ""
}

// try fills in each template once for each way it can be used.
func (a Adapter) try() error {
	if _, err := a.SetupCommands(); err != nil {
		return err
	}
	if a.Brain {
		_, err := a.Instructions(Input{Text: "text"})
		return err
	}
	for _, provider := range append([]string{""}, a.Providers...) {
		in := Input{Text: "text", Command: "true", Provider: provider, Model: "model", Checks: []cofferdam.Check{{Command: "true"}}}
		if _, err := a.Start(in); err != nil {
			return err
		}
		if in.Conversation, in.Message = "1", "message"; len(a.Resume) > 0 {
			if _, err := a.Start(in); err != nil {
				return err
			}
		}
	}
	return nil
}
