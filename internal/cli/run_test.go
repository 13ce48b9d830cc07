package cli

import (
	"strings"
	"testing"

	"cofferdam/internal/local"
	"cofferdam/sandbox"
)

// TestRunNotStarted: a command that could not be started has a next step, which is
// another one where its words were given as one; one that ended by itself has none.
func TestRunNotStarted(t *testing.T) {
	ended := func(r sandbox.Result) local.Result { return local.Result{Result: r} }
	for _, c := range []struct {
		name string
		res  local.Result
		hint string
	}{
		{"nosuch", ended(sandbox.Result{Exit: 127, Reason: "run nosuch: no such program"}), "PATH"},
		{"go test ./...", ended(sandbox.Result{Exit: 127, Reason: "run go test ./...: no such program"}), "cofferdam run -- sh -c"},
		{"./main.go", ended(sandbox.Result{Exit: 126, Reason: "run ./main.go: permission denied"}), "chmod +x"},
		{"make", ended(sandbox.Result{Exit: 137, Reason: "it was ended"}), ""},
		{"sh", ended(sandbox.Result{Exit: 127}), ""},
	} {
		out := shown(t, 0, nil, "", func(a *app) {
			r := &runFlags{o: local.Options{Argv: []string{c.name}}}
			if err := r.tell(a, c.res); err != nil {
				t.Error(err)
			}
		})
		_, hint, _ := strings.Cut(out, "hint: ")
		if (hint == "") != (c.hint == "") || !strings.Contains(hint, c.hint) {
			t.Errorf("%s: %q, want a hint with %q", c.name, out, c.hint)
		}
	}
}
