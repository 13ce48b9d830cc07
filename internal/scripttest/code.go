package scripttest

import (
	"fmt"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCode prints the code that an application for codes shows, for a program to bring:
// that of now, of the next half minute, or the one that was used last.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "code {code}|{next}|{same}")
	_, err := fmt.Fprintln(ts.Stdout(), typed(args[0], "", ts.MkAbs("application")))
	ts.Check(err)
}
