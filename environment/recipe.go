package environment

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"cofferdam"
)

// RecipePath is where a repository keeps its own definition.
const RecipePath = ".cofferdam/environment.toml"

// Bounds of a recipe, which comes from a repository that nobody has to trust.
// Source: docs/SPECIFICATION.md, "Environments".
const (
	MaxRecipe  = 64 << 10         // bytes of the file
	maxSteps   = 64               // entries of each list
	maxText    = 16 << 10         // bytes of one entry
	MaxTimeout = 59 * time.Minute // of a setup, as hosted agents have it
	// MaxAge is the oldest a made environment may be, whatever a recipe says.
	MaxAge = 30 * 24 * time.Hour
	// DefaultAge is that of a recipe that says nothing.
	DefaultAge = 7 * 24 * time.Hour
	// DefaultTimeout is that of a recipe that says nothing.
	DefaultTimeout = 15 * time.Minute
)

// None is the name that asks for no recipe at all.
const None = "none"

// Recipe is what a repository asks its boxes to be made of. The format of
// RecipePath is TOML; every key may be left out:
//
//	image = "host"                      # or a name of the operator's, or HOST/NAME:TAG of a registry
//	packages = ["ripgrep"]              # of Debian; image is "debian" then
//	setup = ["pip install --target /env/py ruff"]  # once, in /env, without the repository
//	secrets = ["NPM_TOKEN"]             # of the operator's, as variables of setup alone
//	allow = ["preset:pip"]              # what setup and maintenance may reach, of what the task may
//	maintenance = ["npm ci"]            # in every new box, in the workspace
//	ready = ["ruff --version"]          # must pass before an agent or a check begins
//	env = { PYTHONPATH = "/env/py" }
//	max_age = "72h"                     # after that setup runs again
//	timeout = "20m"                     # of the setup, and of all that runs in a new box
//
// A secret is the exception: what setup reaches gets its credentials at the
// gateway, so that no value enters a box. What a tool insists on in its own hands
// the operator grants by name, and nothing that lasts may hold it: see Holds.
type Recipe struct {
	Path        string // of the file it was read from; "" for none
	Image       string // "" for the task's own
	Packages    []string
	Setup       []string
	Secrets     []string
	Allow       []string
	Maintenance []Step
	Ready       []Step
	Env         map[string]string // values may hold ${containerEnv:NAME}
	MaxAge      time.Duration
	Timeout     time.Duration
	Ignored     []string // keys that have no effect here
}

// Step is one command of a recipe: shell text, or words that no shell reads.
type Step struct {
	Name   string // for people: "maintenance 2"
	Shell  string
	Argv   []string
	Beside bool // may run at the same time as the step before it
}

// Text returns the command for people.
func (s Step) Text() string {
	if s.Shell != "" {
		return s.Shell
	}
	return strings.Join(s.Argv, " ")
}

// recipeFile is the file as TOML has it.
type recipeFile struct {
	Image       string            `toml:"image"`
	Packages    []string          `toml:"packages"`
	Setup       []string          `toml:"setup"`
	Secrets     []string          `toml:"secrets"`
	Allow       []string          `toml:"allow"`
	Maintenance []string          `toml:"maintenance"`
	Ready       []string          `toml:"ready"`
	Env         map[string]string `toml:"env"`
	MaxAge      string            `toml:"max_age"`
	Timeout     string            `toml:"timeout"`
}

const recipeHint = "the keys are image, packages, setup, secrets, allow, maintenance, ready, env, max_age and timeout; --environment none goes without the file"

// containerHint is for the file of another standard, which was not written for us.
const containerHint = "--environment none goes without the file; or take these keys out, or say in " + RecipePath + " what is needed: that file is read instead"

func badRecipe(path, reason string, err error) error {
	hint := recipeHint
	if path != RecipePath {
		hint = containerHint
	}
	return &cofferdam.Error{Op: "environment.Read", Kind: cofferdam.Invalid, Subject: path, Reason: reason, Hint: hint, Err: err}
}

// tidyText says what is wrong with text as such; "" if nothing is.
func tidyText(text []byte) string {
	switch {
	case len(text) > MaxRecipe:
		return fmt.Sprintf("it is larger than %d bytes", MaxRecipe)
	case !utf8.Valid(text):
		return "it is not valid UTF-8 text"
	case bytes.IndexByte(text, 0) >= 0:
		return "it contains a zero byte"
	}
	return ""
}

// ParseRecipe reads the TOML form. An error names the key and its line.
func ParseRecipe(text []byte) (Recipe, error) {
	if why := tidyText(text); why != "" {
		return Recipe{}, badRecipe(RecipePath, why, nil)
	}
	var f recipeFile
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Recipe{}, badRecipe(RecipePath, tomlReason(err), err)
	}
	r := Recipe{
		Path: RecipePath, Image: f.Image, Packages: f.Packages, Setup: f.Setup, Secrets: f.Secrets, Allow: f.Allow, Env: f.Env,
		Maintenance: steps("maintenance", f.Maintenance), Ready: steps("ready", f.Ready),
	}
	var err error
	if r.MaxAge, err = span("max_age", f.MaxAge, DefaultAge, MaxAge); err != nil {
		return Recipe{}, badRecipe(RecipePath, err.Error(), nil)
	}
	if r.Timeout, err = span("timeout", f.Timeout, DefaultTimeout, MaxTimeout); err != nil {
		return Recipe{}, badRecipe(RecipePath, err.Error(), nil)
	}
	if why := r.wrong(); why != "" {
		return Recipe{}, badRecipe(RecipePath, why, nil)
	}
	return r, nil
}

func steps(name string, texts []string) (all []Step) {
	for i, t := range texts {
		all = append(all, Step{Name: fmt.Sprintf("%s %d", name, i+1), Shell: t})
	}
	return all
}

// span reads a duration between a second and most.
func span(key, text string, otherwise, most time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > most {
		return 0, fmt.Errorf("%s: %.40q is no time between 1s and %s", key, text, most)
	}
	return d, nil
}

// tomlReason names key and line of a TOML error.
func tomlReason(err error) string {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		var all []string
		for _, e := range strict.Errors[:min(len(strict.Errors), maxSteps)] {
			line, _ := e.Position()
			all = append(all, fmt.Sprintf("line %d: unknown key %.80q", line, strings.Join(e.Key(), ".")))
		}
		return strings.Join(all, "; ")
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		line, _ := bad.Position()
		key := strings.Join(bad.Key(), ".")
		if strings.Contains(bad.Error(), "cannot decode TOML") { // and into which type of ours, which tells nobody anything
			return fmt.Sprintf("line %d: key %.80q: wrong type of value: text needs quotes, a number has none, a list has [ ]", line, key)
		}
		if key != "" {
			return fmt.Sprintf("line %d: key %.80q: %s", line, key, strings.TrimPrefix(bad.Error(), "toml: "))
		}
		return fmt.Sprintf("line %d: %s", line, strings.TrimPrefix(bad.Error(), "toml: "))
	}
	return err.Error()
}

var (
	packageName  = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,99}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	imageName    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/@+-]{0,511}$`)
)

// DebianImage is the image of a recipe that names packages.
const DebianImage = "debian"

// wrong says what of a recipe cannot be done, whatever its form; "" for nothing.
func (r Recipe) wrong() string {
	if r.Image != "" && !imageName.MatchString(r.Image) {
		return fmt.Sprintf("image: %.80q is no image; a folder of the server is for its operator to name", r.Image)
	}
	if (len(r.Packages) > 0) != (r.Image == DebianImage) {
		return `packages: they need image = "debian", and that image needs packages`
	}
	for _, p := range r.Packages {
		if !packageName.MatchString(p) {
			return fmt.Sprintf("packages: %.80q is no name of a package", p)
		}
	}
	for name, n := range map[string]int{
		"packages": len(r.Packages), "setup": len(r.Setup), "secrets": len(r.Secrets), "allow": len(r.Allow), "maintenance": len(r.Maintenance), "ready": len(r.Ready), "env": len(r.Env),
	} {
		if n > maxSteps {
			return fmt.Sprintf("%s: %d entries, at most %d are taken", name, n, maxSteps)
		}
	}
	all := slices.Concat(steps("setup", r.Setup), r.Maintenance, r.Ready)
	for _, s := range all {
		if len(s.Text()) > maxText || strings.TrimSpace(s.Text()) == "" {
			return fmt.Sprintf("%s: must be 1 to %d bytes of text", s.Name, maxText)
		}
		if strings.ContainsRune(s.Text(), 0) { // by an escape: no command can be started with one
			return s.Name + ": it contains a zero byte"
		}
	}
	for _, name := range r.Secrets {
		if _, set := r.Env[name]; set || !variableName.MatchString(name) || strings.HasPrefix(name, "COFFERDAM_") {
			return fmt.Sprintf("secrets: %.80q is no name of a variable that is free", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		switch {
		case !variableName.MatchString(name) || strings.HasPrefix(name, "COFFERDAM_"):
			return fmt.Sprintf("env: %.80q is no name of a variable that a repository may set", name)
		case len(r.Env[name]) > maxText || strings.ContainsRune(r.Env[name], 0):
			return fmt.Sprintf("env: the value of %s must be text of at most %d bytes", name, maxText)
		}
	}
	return ""
}

var fromBox = regexp.MustCompile(`\$\{containerEnv:([A-Za-z_][A-Za-z0-9_]*)(?::([^}]*))?\}`)

// Variables returns NAME=value of the recipe, sorted. What a value takes from
// the box is looked up in box, a list of NAME=value, never in this process.
func (r Recipe) Variables(box []string) []string {
	have := map[string]string{}
	for _, v := range box {
		name, value, _ := strings.Cut(v, "=")
		have[name] = value
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		value := fromBox.ReplaceAllStringFunc(r.Env[name], func(m string) string {
			part := fromBox.FindStringSubmatch(m)
			if v, ok := have[part[1]]; ok {
				return v
			}
			return part[2]
		})
		all = append(all, name+"="+value)
	}
	return all
}

var folderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Paths lists where a recipe of that name may be, the first that exists counts.
// "" is the repository's own; None has none; any other name is a folder in
// .devcontainer.
func Paths(name string) ([]string, error) {
	switch {
	case name == None:
		return nil, nil
	case name == "":
		return []string{RecipePath, ".devcontainer/devcontainer.json", ".devcontainer.json"}, nil
	case !folderName.MatchString(name):
		return nil, &cofferdam.Error{
			Op: "environment.Paths", Kind: cofferdam.Invalid, Subject: fmt.Sprintf("environment %.80q", name),
			Reason: "that is no name of a folder in .devcontainer", Hint: "leave --environment away for the repository's own, or give none",
		}
	}
	return []string{".devcontainer/" + name + "/devcontainer.json"}, nil
}

// Read reads the recipe at path, in the form that its name says.
func Read(path string, text []byte) (Recipe, error) {
	if path == RecipePath {
		return ParseRecipe(text)
	}
	return ParseDevcontainer(path, text)
}
