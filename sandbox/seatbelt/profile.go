package seatbelt

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"cofferdam"
)

// Bounds of one profile. A home folder with more entries than that is somebody's
// archive; its user names a workspace in it.
const (
	MaxPaths = 1024
	maxPath  = 1024 // bytes, the kernel's own bound
)

// Program encloses a command by a profile.
const Program = "/usr/bin/sandbox-exec"

// Box says what one command may do. All paths are absolute, clean, and as the
// kernel has them: without links, and in the letters that the disk has.
type Box struct {
	Writable []string // folders: the workspace, and what belongs to it
	Temp     string   // folder of this command alone, writable
	Read     []string // files and folders besides the system's own; see Host
	Hidden   []string // what may not be read of all that, whatever it is in; see Host
	Port     uint16   // of a proxy on loopback; 0: no network at all
}

// Profile is a profile with its parameters.
type Profile struct {
	Text   string
	Params []string // NAME=PATH
}

// Args returns what Program is started with to run argv.
func (p Profile) Args(argv []string) []string {
	args := []string{"-p", p.Text}
	for _, v := range p.Params {
		args = append(args, "-D", v)
	}
	return append(append(args, "--"), argv...)
}

// writer collects rules and parameters.
type writer struct {
	text  strings.Builder
	names map[string]string // path to the name of its parameter
	list  []string
}

// Profile writes the profile of b. A path that cannot be named is Invalid.
func (b Box) Profile() (Profile, error) {
	if err := b.check(); err != nil {
		return Profile{}, err
	}
	w := &writer{names: map[string]string{}}
	w.line("(version 1)")
	w.line("(deny default)")
	w.common()
	const readable = "file-read* file-map-executable process-exec*"
	w.rule("allow", readable, append(fixed("subpath", systemRead), w.each("subpath", b.Read)...))
	w.rule("allow", "file-read*", fixed("literal", topLinks))
	w.rule("allow", "file-read-metadata", w.each("literal", b.above()))
	hidden := append(fixed("subpath", hiddenTop), w.each("subpath", b.Hidden)...)
	for _, dir := range etcFolders {
		for _, r := range etcRules(dir) {
			hidden = append(hidden, `(regex #"`+r+`")`)
		}
	}
	w.rule("deny", readable, hidden)
	own := append(slices.Clone(b.Writable), b.Temp)
	w.rule("allow", readable+" file-write*", w.each("subpath", own))
	// Its place in the folder above stays its own: a link there would be followed
	// by whoever comes next.
	w.rule("deny", "file-write-create file-write-unlink", w.each("literal", own))
	w.rule("deny", "file-write-setugid", nil)
	w.rule("deny", "process-exec*", fixed("literal", noPrograms))
	if b.Port != 0 {
		w.line(fmt.Sprintf(`(allow network-outbound (remote tcp "localhost:%d"))`, b.Port))
	}
	return Profile{Text: w.text.String(), Params: w.list}, nil
}

// common is what every command may do with the kernel and with its own kind.
func (w *writer) common() {
	w.line("(allow process-fork)")
	w.line("(allow process-info* (target same-sandbox))")
	w.line("(allow signal (target same-sandbox))")
	w.rule("allow", "sysctl-read", append(fixed("sysctl-name", kernelNames), fixed("sysctl-name-prefix", kernelPrefixes)...))
	w.rule("allow", "mach-lookup", fixed("global-name", services))
	w.line(`(allow ipc-posix-shm-read* (ipc-posix-name "apple.shm.notification_center"))`)
	w.line(`(allow ipc-posix-sem (ipc-posix-name-regex #"^/mp-"))`) // Python's multiprocessing
	w.rule("allow", "file-read*", fixed("subpath", devices))
	w.rule("allow", "file-write-data", fixed("subpath", writeDevices))
}

func (w *writer) line(text string) { w.text.WriteString(text + "\n") }

// rule writes one rule with a filter a line. A list of filters that came out
// empty must not become a rule that matches always: nil says that it should.
func (w *writer) rule(verdict, operations string, filters []string) {
	if filters != nil && len(filters) == 0 {
		return
	}
	w.line("(" + strings.Join(append([]string{verdict + " " + operations}, filters...), "\n  ") + ")")
}

// fixed are filters with texts of our own.
func fixed(filter string, texts []string) []string {
	all := []string{}
	for _, t := range texts {
		all = append(all, fmt.Sprintf("(%s %q)", filter, t))
	}
	return all
}

// each are filters with paths, which become parameters.
func (w *writer) each(filter string, paths []string) []string {
	all := []string{}
	for _, path := range paths {
		name, ok := w.names[path]
		if !ok {
			name = fmt.Sprintf("P%d", len(w.names))
			w.names[path] = name
			w.list = append(w.list, name+"="+path)
		}
		all = append(all, fmt.Sprintf("(%s (param %q))", filter, name))
	}
	return all
}

// above are the folders that what can be read is in, up to the top: to reach a
// path a program looks at each. What else is in them it cannot list.
func (b Box) above() []string {
	var all []string
	for _, path := range append(b.paths(), systemRead...) {
		for up := filepath.Dir(path); up != "/"; up = filepath.Dir(up) {
			all = append(all, up)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (b Box) paths() []string {
	return slices.Concat(b.Writable, []string{b.Temp}, b.Read)
}

func (b Box) check() error {
	all := append(b.paths(), b.Hidden...)
	if len(all) > MaxPaths {
		return invalid("its folders", fmt.Sprintf("%d paths, more than %d", len(all), MaxPaths), "move what the command does not need out of the home folder")
	}
	for _, path := range all {
		if why := wrong(path); why != "" {
			return invalid(fmt.Sprintf("path %.200q", path), why, "give the folder another name")
		}
	}
	for _, path := range append(slices.Clone(b.Writable), b.Temp) {
		for _, system := range append(slices.Clone(systemRead), "/dev", "/private/var/db") {
			if within(system, path) || within(path, system) {
				return invalid("folder "+path, system+" is part of the system, no place of a project", "run in a folder of your project")
			}
		}
	}
	return nil
}

// wrong says why a path cannot be one of a profile; "" for one that can.
func wrong(path string) string {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/":
		return "not a clean absolute path below the top"
	case len(path) > maxPath:
		return fmt.Sprintf("longer than %d bytes", maxPath)
	case !utf8.ValidString(path):
		return "not valid UTF-8: a Mac has no such names"
	case strings.ContainsFunc(path, unicode.IsControl):
		return "a control character is in it"
	}
	return ""
}

func within(folder, path string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

func invalid(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "seatbelt.Profile", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}
