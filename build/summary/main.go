// Command summary reads the output of "go test -json" from its standard input,
// shows failures whole and everything else in one line per package, names every
// skipped test with its reason and closes with "N passed, N failed, N skipped".
//
// It never decides what is run and never hides a failure: its exit status is 1
// when a test or a package failed, or when nothing was run at all.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of "go test -json"; see "go doc test2json".
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type key struct{ pkg, test string }

type summary struct {
	out                     io.Writer
	text                    map[key]*strings.Builder
	passed, failed, skipped int
	skips, failures         []string
	childFailed             map[key]bool
}

func main() {
	s := &summary{out: os.Stdout, text: map[key]*strings.Builder{}, childFailed: map[key]bool{}}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Fprintln(s.out, in.Text()) // a build error that is not JSON
			continue
		}
		s.take(e)
	}
	os.Exit(s.close())
}

func (s *summary) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		b := s.text[k]
		if b == nil {
			b = &strings.Builder{}
			s.text[k] = b
		}
		if b.Len() < 1<<20 {
			b.WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		s.end(k, e)
		delete(s.text, k)
	}
}

func (s *summary) end(k key, e event) {
	text := ""
	if b := s.text[k]; b != nil {
		text = b.String()
	}
	if e.Test == "" {
		s.endPackage(k, e, text)
		return
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		s.skips = append(s.skips, fmt.Sprintf("skipped %s %s: %s", short(e.Package), e.Test, reason(text)))
	case "fail":
		s.failed++
		s.childFailed[key{e.Package, ""}] = true
		s.failures = append(s.failures, short(e.Package)+" "+e.Test)
		fmt.Fprintf(s.out, "--- failed: %s %s\n%s", short(e.Package), e.Test, text)
	}
}

func (s *summary) endPackage(k key, e event, text string) {
	if e.Action == "fail" && !s.childFailed[k] {
		s.failed++ // did not build, panicked or was killed
		s.failures = append(s.failures, short(e.Package))
		fmt.Fprintf(s.out, "--- failed: %s\n%s", short(e.Package), text)
		for of, said := range s.text {
			if of.pkg == e.Package && of.test != "" { // it was under way, and may say why
				fmt.Fprintf(s.out, "--- not ended: %s %s\n%s", short(of.pkg), of.test, said)
				delete(s.text, of)
			}
		}
		return
	}
	if e.Action != "skip" {
		fmt.Fprintf(s.out, "%-6s %-28s %6.1f s\n", e.Action, short(e.Package), e.Elapsed)
	}
}

func (s *summary) close() int {
	for _, l := range append(s.skips, s.failures...) {
		fmt.Fprintln(s.out, l)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if s.failed > 0 || s.passed == 0 {
		return 1
	}
	return 0
}

func short(pkg string) string {
	if rest, ok := strings.CutPrefix(pkg, "cofferdam/"); ok {
		return rest
	}
	return pkg
}

// reason finds what t.Skip was told in a test's output.
func reason(text string) string {
	for _, l := range strings.Split(text, "\n") {
		l = strings.TrimSpace(l)
		if _, r, ok := strings.Cut(l, ".go:"); ok {
			if _, r, ok := strings.Cut(r, ": "); ok {
				return r
			}
		}
	}
	return "no reason given"
}
