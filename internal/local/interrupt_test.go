package local

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"cofferdam/internal/local/gateways"
	"cofferdam/sandbox"
)

// TestInterruptedCopy: a signal that ends programs ends a run whose copy is being
// made, as it would have ended the command; nothing of the copy is left, and the
// original is untouched. Others do not.
func TestInterruptedCopy(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		exit   int // -1: the run goes on
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}, {syscall.SIGQUIT, 131}, {syscall.SIGUSR1, -1}, {syscall.SIGWINCH, -1}} {
		t.Run(c.signal.String(), func(t *testing.T) {
			dir := real(t)
			shell(t, dir, "mkdir -p home/shop/a/b state && echo text > home/shop/a/b/file")
			signals := make(chan os.Signal, 1)
			signals <- c.signal
			env := map[string]string{"HOME": filepath.Join(dir, "home"), "XDG_STATE_HOME": filepath.Join(dir, "state")}
			r := newRun(Options{
				Argv: []string{"true"}, Workspace: filepath.Join(dir, "home/shop"), Copy: true, Signals: signals, Gateways: gateways.Here{},
				Getenv: func(name string) string { return env[name] }, Environ: func() []string { return nil },
			})
			began := false
			res, err := r.do(t.Context(), func(context.Context) (sandbox.Result, error) {
				began = true
				return sandbox.Result{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if began != (c.exit < 0) || c.exit > 0 && (res.Exit != c.exit || res.Signal != int(c.signal) || res.Reason == "" || res.Trace != "" || res.Copy != "") {
				t.Errorf("began: %t, %+v", began, res)
			}
			if out := shell(t, dir, "ls -A state/cofferdam/copies; cat home/shop/a/b/file"); out != "text\n" {
				t.Errorf("left: %q", out)
			}
		})
	}
}
