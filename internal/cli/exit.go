package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

// codes says what each exit code means. Source: ARCHITECTURE.md, "States and exit codes".
func codes() map[int]string {
	return map[int]string{
		0: "done", 1: "failed", 2: "wrong usage or wrong input", 4: "not signed in, or not allowed", 5: "not found",
		8: "still under way when asked only to look", 9: "waits for a person", 10: "denied by policy",
		11: "evidence does not verify, or is not sealed", 12: "budget or limit exhausted, or timed out",
		125: "the command did not run, for a reason that is told", 126: "it is no program", 127: "there is no such program", 130: "interrupted, or cancelled",
	}
}

// exits is the last section of every help text.
func exits(list ...int) string {
	var b strings.Builder
	b.WriteString("\n\nExit codes:\n")
	for _, c := range list {
		fmt.Fprintf(&b, "  %-4d %s\n", c, codes()[c])
	}
	b.WriteString("Treat a non-zero code you do not know as failure.")
	return b.String()
}

// calling is exits for commands that call the server.
func calling(more ...int) string {
	list := append([]int{0, 1, 2, 4, 5}, more...)
	slices.Sort(list)
	return exits(slices.Compact(list)...)
}

// outcome ends the program with a task's own code; everything was said already.
type outcome int

func (o outcome) Error() string { return fmt.Sprintf("exit %d", int(o)) }

// interrupted ends it after Ctrl-C.
type interrupted struct{ hint string }

func (interrupted) Error() string { return "interrupted" }

func isOutcome(err error) bool {
	var o outcome
	var i interrupted
	return errors.As(err, &o) || errors.As(err, &i)
}

// codeOf returns the exit code of a task's state. looking is for commands that
// do not wait for its end.
func codeOf(t cofferdam.Task) int {
	switch t.State {
	case cofferdam.InReview, cofferdam.Done, cofferdam.NothingToDo:
		return 0
	case cofferdam.Waiting:
		return 9
	case cofferdam.Blocked:
		if t.Reason == "budget" {
			return 12
		}
		return 1
	case cofferdam.TimedOut:
		return 12
	case cofferdam.Cancelled:
		return 130
	case cofferdam.Failed:
		return 1
	}
	return 8
}

// ended turns a task's state into the command's end.
func ended(t cofferdam.Task) error {
	if c := codeOf(t); c != 0 {
		return outcome(c)
	}
	return nil
}

// fail shows an error and returns its exit code.
func (a *app) fail(err error, asJSON bool) int {
	var o outcome
	var i interrupted
	switch {
	case err == nil:
		return 0
	case errors.As(err, &o):
		return int(o)
	case errors.As(err, &i):
		if i.hint != "" && !asJSON {
			fmt.Fprintln(a.Err, "hint: "+clean(i.hint))
		}
		return 130
	}
	info := cofferdam.Kinds()[cofferdam.KindOf(err)]
	if a.own != 0 {
		info.Exit = a.own
	}
	if asJSON || a.json {
		a.failJSON(err, info)
		return info.Exit
	}
	fmt.Fprintln(a.Err, "cofferdam: "+clean(wording(err)))
	fmt.Fprintln(a.Err, "hint: "+clean(cofferdam.HintOf(err)))
	if a.debug {
		for u := err; u != nil; u = errors.Unwrap(u) {
			fmt.Fprintf(a.Err, "cause: %T: %s\n", u, clean(u.Error()))
		}
	}
	return info.Exit
}

func (a *app) failJSON(err error, info cofferdam.KindInfo) {
	out := struct {
		Schema   string `json:"schema"`
		Kind     string `json:"kind"`
		Op       string `json:"op,omitempty"`
		Message  string `json:"message"`
		Hint     string `json:"hint"`
		ExitCode int    `json:"exit_code"`
		Request  string `json:"request_id,omitempty"`
	}{Schema: "cofferdam/error/v1", Kind: info.Name, Message: wording(err), Hint: cofferdam.HintOf(err), ExitCode: info.Exit}
	var e *cofferdam.Error
	if errors.As(err, &e) {
		out.Op = e.Op
	}
	var r *client.RequestError
	if errors.As(err, &r) {
		out.Request = r.RequestID
	}
	data, merr := json.Marshal(out)
	if merr != nil {
		data = []byte(`{"schema":"cofferdam/error/v1","kind":"internal"}`) // cannot happen: text and numbers only
	}
	fmt.Fprintln(a.Err, string(safeJSON(data)))
}

// wording is the line for people: the words of the first error that was made
// for them, else the text of the error.
func wording(err error) string {
	var e *cofferdam.Error
	if errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}

// usage names the command without the program: that is said before each error.
func usage(c *cobra.Command, reason string) error {
	_, verb, _ := strings.Cut(c.CommandPath(), " ")
	return cofferdamError(verb, reason, "see "+c.CommandPath()+" --help")
}

func quoted(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// exactly wants one argument for each name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(c, strings.Join(names[len(args):], " and ")+" is missing")
		case len(args) > len(names):
			return usage(c, "one argument too many: "+quoted(args[len(names)]))
		}
		for i, arg := range args {
			if strings.TrimSpace(arg) == "" || len(arg) > maxArg || strings.ContainsRune(arg, 0) {
				return usage(c, names[i]+" is empty or longer than "+fmt.Sprint(maxArg)+" bytes")
			}
		}
		return nil
	}
}

// maxArg bounds one argument that is a name, a path or a URL.
const maxArg = 4096

func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(c, "takes no argument, but got "+quoted(args[0]))
	}
	return nil
}
