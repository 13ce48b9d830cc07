package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// selfText prints what a process was given: user, groups, limits, descriptors,
// signals, rights, folder, environment, and whether it leads its session.
const selfText = `id; ulimit -a; ls -l /proc/self/fd | wc -l; umask; pwd; env | sort; tr '\0' ' ' </proc/$$/cmdline
	grep -E '^(Sig|Shd|Cap|NoNew|Groups|Threads)' /proc/$$/status
	set -- $(cat /proc/$$/stat); [ "$1" = "$5" ] && [ "$5" = "$6" ] && echo leads, child of $4; ulimit -n; set -- /proc/[0-9]*; echo $#`

// othersText prints what runs in the box. It starts nothing for that: what a
// pipeline is made of is seen as a shell first.
const othersText = `for p in /proc/[0-9]*; do read name <$p/comm && echo $name; done`

// firsts are commands that a box may be asked for first, each with what must be in
// the way it ends.
var firsts = map[string]struct {
	c    sandbox.Command
	exit int
}{
	"all it was given":     {sandbox.Command{Shell: selfText, Env: []string{"MINE=a b", "PATH=/usr/bin:/bin"}}, 0},
	"by its name":          {sandbox.Command{Argv: []string{"id", "-u"}}, 0},
	"below its folder":     {sandbox.Command{Argv: []string{"./id", "-u"}, Dir: "/usr/bin"}, 0},
	"a code":               {sandbox.Command{Shell: "echo out; echo err >&2; exit 7"}, 7},
	"a signal":             {sandbox.Command{Shell: "kill -9 $$"}, 137},
	"time is up":           {sandbox.Command{Shell: "sleep 300", Timeout: 200 * time.Millisecond}, 137},
	"nothing is there":     {sandbox.Command{Argv: []string{"nothing-is-called-this"}}, 127},
	"no path leads there":  {sandbox.Command{Argv: []string{"/nothing/there"}}, 127},
	"no program":           {sandbox.Command{Argv: []string{"/etc/passwd"}}, 126},
	"no interpreter":       {sandbox.Command{Argv: []string{"/etc/lost"}}, 127},
	"no format":            {sandbox.Command{Argv: []string{"/etc/odd"}}, 126},
	"no folder":            {sandbox.Command{Shell: "pwd", Dir: "/nothing"}, 126},
	"a file for a folder":  {sandbox.Command{Shell: "pwd", Dir: "/etc/passwd"}, 126},
	"a closed folder":      {sandbox.Command{Argv: []string{"/bin/pwd"}, Dir: "/etc/closed"}, 126},
	"nearly too long":      {sandbox.Command{Argv: []string{"/usr/bin/printf", "%s", strings.Repeat("x", guest.StandbyRoom-1000)}}, 0},
	"longer than it reads": {sandbox.Command{Argv: []string{"/usr/bin/printf", "%s", strings.Repeat("x", guest.StandbyRoom)}}, 0},
	"empty arguments":      {sandbox.Command{Argv: []string{"/usr/bin/printf", "[%s]", "", ""}}, 0},
	"input that ends":      {sandbox.Command{Argv: []string{"cat"}}, 0},
	"output that stays":    {sandbox.Command{Shell: "yes | head -c 3000000"}, 0},
}

// TestFirstCommand: the first command of a box that was made ahead, which has a
// process already, is in nothing another than that of a box that was not.
func TestFirstCommand(t *testing.T) {
	pooled, plain := newPooled(t, 3), newDriver(t)
	files := func(s *sandbox.Spec) {
		s.Files = []sandbox.File{
			{Path: "/etc/lost", Data: []byte("#!/nothing/there\n"), Mode: 0o755, Shared: true},
			{Path: "/etc/odd", Data: []byte{1, 2, 3}, Mode: 0o755, Shared: true},
		}
	}
	newBox(t, pooled, files)
	other := newBox(t, plain, files)
	for name, f := range firsts {
		t.Run(name, func(t *testing.T) {
			waiting(t, pooled, 3)
			b := newBox(t, pooled, files)
			if nameOf(b) == b.ID() {
				t.Fatal("it was not made ahead")
			}
			if jobs, err := b.Jobs(t.Context()); err != nil || len(jobs) > 0 {
				t.Errorf("before it runs anything it runs %v, %v", jobs, err)
			}
			got, want := first(t, b, f.c), first(t, other, f.c)
			if f.c.Shell == selfText { // of its own, and not equal
				want = first(t, newBox(t, plain, files), f.c)
			}
			if !reflect.DeepEqual(got, want) || got.Exit != f.exit {
				t.Errorf("got  %.3000s\nwant %.3000s, exit %d", fmt.Sprint(got), fmt.Sprint(want), f.exit)
			}
			if left, r := sh(t, b, othersText); r.Exit != 0 || left != "init\nsh" {
				t.Errorf("then there are %q", left)
			}
			must(t, b.Destroy(context.Background()))
		})
	}
}

// outcome is what a command did, without the times.
type outcome struct {
	sandbox.Result
	Out, Err string
}

func first(t *testing.T, b sandbox.Box, c sandbox.Command) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	c.ID = cofferdam.ExecID(cofferdam.NewID("e"))
	r, err := sandbox.Run(t.Context(), b, c, &out, &errs)
	if err != nil {
		t.Fatal(err)
	}
	r.Started, r.Ended = time.Time{}, time.Time{}
	return outcome{r, out.String(), errs.String()}
}

// TestFirstCommandWithInput: what waits in a box cannot have input; it goes, and the
// first command is made as any other. So it is for one that is copied with its box.
func TestFirstCommandWithInput(t *testing.T) {
	d := newPooled(t, 1)
	newBox(t, d)
	waiting(t, d, 1)
	b := newBox(t, d)
	ctx := context.Background()
	s, err := b.Snapshot(ctx, sandbox.Take{ID: newSnapshotID(), Memory: true})
	must(t, err)
	for _, box := range []sandbox.Box{b, newBox(t, d, func(c *sandbox.Spec) { c.Snapshot = s.ID })} {
		must(t, box.Start(ctx, sandbox.Command{ID: "in", Argv: []string{"cat"}, Stdin: true}))
		must(t, box.Write(ctx, "in", []byte("said\n"), true))
		out, wait := follow(t, box, "in", 0)
		if r := wait(); r.Exit != 0 || out.String() != "said\n" {
			t.Errorf("%q %+v", out, r)
		}
		if left, _ := sh(t, box, othersText); left != "init\nsh" {
			t.Errorf("there are %q", left)
		}
	}
	for _, box := range []sandbox.Box{newBox(t, d, func(c *sandbox.Spec) { c.Snapshot = s.ID })} {
		if out, r := sh(t, box, "echo x"); out != "x" || r.Exit != 0 {
			t.Errorf("%q %+v", out, r)
		}
	}
	must(t, d.RemoveSnapshot(ctx, s.ID))
}
