package policy

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"regexp"
	"strings"

	"cofferdam"
)

// A document may begin with class = "read-only". A class is a document that ships
// with the program and is judged as a layer of its own beside the one that names
// it: it denies, asks and limits, and gives nothing. A project without one is
// bounded by its own rules alone.
//
// What is kept of such a document has the text of the class in it, so that another
// program judges by the same:
//
//	class = "read-only"
//	…
//	[base]
//	digest = "sha256:…"
//	text = '''…'''

// Class is one of those that ship.
type Class struct {
	Name   string           `json:"name"`
	Says   string           `json:"says"` // in a sentence
	Text   string           `json:"text"`
	Digest cofferdam.Digest `json:"digest"` // of the text
}

// classNames are those that ship, the narrowest first: each lets through all that
// the one before it does.
var classNames = []string{"read-only", "ask-to-write", "write"}

//go:embed class/*.toml
var classFiles embed.FS

// Classes returns those that ship with this program, the narrowest first.
func Classes() []Class {
	var all []Class
	for _, name := range classNames {
		text, err := classFiles.ReadFile("class/" + name + ".toml")
		if err != nil {
			panic("policy: a class that is listed is there; a test reads each")
		}
		all = append(all, Class{Name: name, Says: firstLine(string(text)), Text: string(text), Digest: textDigest(string(text))})
	}
	return all
}

// ClassNamed returns the class of that name as this program has it.
func ClassNamed(name string) (Class, error) {
	for _, c := range Classes() {
		if c.Name == name {
			return c, nil
		}
	}
	return Class{}, &cofferdam.Error{
		Op: "policy.ClassNamed", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("class %q", shorten(name)), Reason: "there is none of this name",
		Hint: "the classes are " + strings.Join(classNames, ", "),
	}
}

func textDigest(text string) cofferdam.Digest {
	return cofferdam.DigestOfSum(sha256.Sum256([]byte(text)))
}

// baseFile is the text of a class in a document that is kept.
type baseFile struct {
	Digest cofferdam.Digest `toml:"digest"`
	Text   string           `toml:"text"`
}

// addBase reads the class that d names: as it is written in d, or else as this
// program has it.
func (d *Document) addBase(name string, f *baseFile) error {
	switch {
	case name == "" && f == nil:
		return nil
	case name == "":
		return fmt.Errorf("base: it is the text of a class, and class is missing")
	case !ruleID.MatchString(name):
		return fmt.Errorf("class: %q is no name of a class", shorten(name))
	case f == nil:
		c, err := ClassNamed(name)
		if err != nil {
			return fmt.Errorf("class: there is none called %q; there are %s", shorten(name), strings.Join(classNames, ", "))
		}
		f = &baseFile{Digest: c.Digest, Text: c.Text}
	case textDigest(f.Text) != f.Digest:
		return fmt.Errorf("base: its text has another digest; leave [base] out, and it is written when the policy is proposed")
	default:
		d.Sealed = true
	}
	base, err := ParseDocument(name, []byte(f.Text), nil)
	switch {
	case err != nil:
		return fmt.Errorf("base: %w", err)
	case base.Base != nil || base.Mode != Enforce || len(base.with(Allow)) > 0 || idName(base.Name) == idName(OrganizationName) || base.Name == ProjectName:
		return fmt.Errorf("base: a class denies, asks and limits, and nothing else")
	}
	d.Base = &base
	return nil
}

// Class names the one that d is under; "" for none.
func (d *Document) Class() string {
	if d == nil || d.Base == nil {
		return ""
	}
	return d.Base.Name
}

// Says is what the class of d is in a sentence, from the first line of its text.
func (d *Document) Says() string {
	if d.Class() == "" {
		return ""
	}
	return firstLine(d.Base.Text)
}

// firstLine is what the text of a class says of itself: its first comment.
func firstLine(text string) string {
	says, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	return says
}

// Ships says whether the class of d is as this program has it.
func (d *Document) Ships() bool {
	c, err := ClassNamed(d.Class())
	return err == nil && c.Digest == d.Base.Digest()
}

// baseMark begins what Seal adds to a text.
const baseMark = "\n# The class as it was when this was proposed.\n[base]\n"

// Seal returns the text of d with that of its class in it, as it is kept.
func (d *Document) Seal() string {
	if d.Base == nil || d.Sealed {
		return d.Text
	}
	return strings.TrimRight(d.Text, "\n") + "\n" + baseMark + fmt.Sprintf("digest = %q\ntext = '''\n%s'''\n", d.Base.Digest(), d.Base.Text)
}

// classLine is how a document names its class; it stands before any table.
var classLine = regexp.MustCompile(`(?m)\A((?:[^\[\n][^\n]*\n|\n)*?)class[ \t]*=[^\n]*\n`)

// WithClass returns the text of a document under another class, or with "" under
// none.
func WithClass(text, class string) (string, error) {
	if class != "" {
		if _, err := ClassNamed(class); err != nil {
			return "", err
		}
	}
	text, _, _ = strings.Cut(text, baseMark)
	text = classLine.ReplaceAllString(text, "$1")
	if class != "" {
		text = fmt.Sprintf("class = %q\n", class) + text
	}
	if d, err := ParseDocument(ProjectName, []byte(text), nil); err == nil && (d.Sealed || d.Class() != class) {
		return "", &cofferdam.Error{
			Op: "policy.WithClass", Kind: cofferdam.Invalid, Subject: "class " + class, Reason: "the text names its class in another way", Hint: "write class = \"" + class + "\" as its first line, and leave [base] out",
		}
	}
	return text, nil
}
