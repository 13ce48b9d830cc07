package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// patience bounds each test of the suite, which would otherwise hang with its driver.
const patience = 3 * time.Minute

// Suite runs what every driver must pass. open returns the driver under test;
// it may return the same one each time.
func Suite(t *testing.T, open func(t *testing.T) sandbox.Driver) {
	tests := []struct {
		name string
		run  func(*testing.T, *subject)
	}{
		{"life of a box", testLife},
		{"states", testStates},
		{"stopped and going on", testStops},
		{"snapshot and fork", testFork},
		{"kept workspace", testKeep},
		{"checkpoints", testCheckpoints},
		{"specs that are refused", testRefusals},
		{"results", testResults},
		{"input", testInput},
		{"bytes are not changed", testBytes},
		{"folders", testFolders},
		{"devices", testDevices},
		{"environment", testEnvironment},
		{"two boxes", testTwoBoxes},
		{"jobs are counted", testJobs},
		{"kill ends survivors", testKill},
		{"timeout ends survivors", testTimeout},
		{"nothing outlives a kill", testEscapes},
		{"output is exact over detachments", testDetach},
		{"the writer waits at the cap", testCap},
		{"fifty commands at once", testFifty},
		{"destroy under a command", testDestroy},
		{"many callers at once", testRaces},
		{"wire", testWire},
		{"walls", testWalls},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t)
			tt.run(t, &subject{Driver: d, tier: tierOf(t, d)})
		})
	}
}

// subject is the driver under test.
type subject struct {
	sandbox.Driver
	tier sandbox.Tier
}

// bounded says whether the driver promises walls.
func (s *subject) bounded() bool { return s.tier != sandbox.None }

// tierOf finds a tier that d does not refuse.
func tierOf(t *testing.T, d sandbox.Driver) sandbox.Tier {
	t.Helper()
	var last error
	for _, tier := range append(sandbox.Tiers(), sandbox.None) {
		_, err := d.Create(testContext(t), sandbox.Spec{ID: "refused", Tier: tier, Image: "host"})
		if cofferdam.KindOf(err) == cofferdam.Invalid {
			return tier
		}
		last = err
	}
	t.Fatalf("the driver has no tier we know: %v", last)
	return ""
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// box makes a box that is destroyed with the test.
func (s *subject) box(t *testing.T, change func(*sandbox.Spec)) *testBox {
	t.Helper()
	spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host"}
	if change != nil {
		change(&spec)
	}
	b, err := s.Create(testContext(t), spec)
	if err != nil {
		t.Fatalf("create: %v (%s)", err, cofferdam.HintOf(err))
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return &testBox{b}
}

// testBox is a box with shorter words.
type testBox struct{ sandbox.Box }

// do runs a command to its end.
func (b *testBox) do(t *testing.T, c sandbox.Command) (r sandbox.Result, stdout, stderr string) {
	t.Helper()
	if c.ID == "" {
		c.ID = cofferdam.ExecID(cofferdam.NewID("x"))
	}
	var out, errs bytes.Buffer
	r, err := sandbox.Run(testContext(t), b, c, &out, &errs)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	if r.Stdout != int64(out.Len()) || r.Stderr != int64(errs.Len()) {
		t.Errorf("got %d and %d bytes, the result says %d and %d", out.Len(), errs.Len(), r.Stdout, r.Stderr)
	}
	return r, out.String(), errs.String()
}

// shell runs text and wants it to succeed.
func (b *testBox) shell(t *testing.T, text string) string {
	t.Helper()
	r, stdout, stderr := b.do(t, sandbox.Command{Shell: text})
	if r.Exit != 0 {
		t.Errorf("%s\nexit %d (%s)\n%s%s", text, r.Exit, r.Reason, stdout, stderr)
	}
	return stdout
}

func (b *testBox) start(t *testing.T, c sandbox.Command) {
	t.Helper()
	if err := b.Start(testContext(t), c); err != nil {
		t.Fatalf("start: %v", err)
	}
}

func wantKind(t *testing.T, what string, err error, want cofferdam.Kind) {
	t.Helper()
	if err == nil || cofferdam.KindOf(err) != want {
		t.Errorf("%s: got error %v, want one of kind %s", what, err, want)
	}
}

func testLife(t *testing.T, s *subject) {
	ctx := testContext(t)
	b := s.box(t, nil)
	if got := b.shell(t, "echo up"); got != "up\n" {
		t.Errorf("got %q", got)
	}
	st, err := b.Status(ctx)
	if err != nil || st.ID != b.ID() || st.State.Over() || st.Tier != s.tier || st.Kernel == "" || st.Image != "host" || st.Created.IsZero() {
		t.Errorf("status %+v, %v", st, err)
	}
	_, err = s.Create(ctx, sandbox.Spec{ID: b.ID(), Tier: s.tier, Image: "host"})
	wantKind(t, "create again", err, cofferdam.Conflict)
	again, err := s.Open(ctx, b.ID())
	if err != nil || again.ID() != b.ID() {
		t.Fatalf("open: %v, %v", again, err)
	}
	if r, err := sandbox.Run(ctx, again, sandbox.Command{ID: "again", Shell: "exit 4"}, nil, nil); err != nil || r.Exit != 4 {
		t.Errorf("run through the opened box: %+v, %v", r, err)
	}
	if !listed(t, s, b.ID()) {
		t.Error("not listed")
	}
	for range 2 {
		if err := b.Destroy(ctx); err != nil {
			t.Errorf("destroy: %v", err)
		}
	}
	if listed(t, s, b.ID()) {
		t.Error("listed after its end")
	}
	_, err = s.Open(ctx, b.ID())
	wantKind(t, "open afterwards", err, cofferdam.NotFound)
	_, err = s.Open(ctx, "b-nobody")
	wantKind(t, "open of nobody", err, cofferdam.NotFound)
	if err := b.Start(ctx, sandbox.Command{ID: "late", Shell: "true"}); err == nil {
		t.Error("a destroyed box runs commands")
	}
}

func listed(t *testing.T, s *subject, id cofferdam.BoxID) bool {
	t.Helper()
	list, err := s.List(testContext(t))
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, st := range list {
		if st.ID == id {
			return true
		}
	}
	return false
}

func testRefusals(t *testing.T, s *subject) {
	ctx := testContext(t)
	good := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host"}
	for name, change := range map[string]func(*sandbox.Spec){
		"no id":               func(s *sandbox.Spec) { s.ID = "" },
		"id with a path":      func(s *sandbox.Spec) { s.ID = "../../../../../../../../../etc/x/y" },
		"no image":            func(s *sandbox.Spec) { s.Image = "" },
		"relative image":      func(s *sandbox.Spec) { s.Image = "x" },
		"missing image":       func(s *sandbox.Spec) { s.Image = "/no/such/image" },
		"missing environment": func(s *sandbox.Spec) { s.Env = "/no/such/env.img" },
		"negative limit":      func(s *sandbox.Spec) { s.Limits.Memory = -1 },
		"file in workspace":   func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/work/x"}} },
		"relative file":       func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "x"}} },
		"relative link":       func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/x", Link: "y"}} },
		"file that climbs":    func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/../work/x"}} },
	} {
		spec := good
		change(&spec)
		_, err := s.Create(ctx, spec)
		wantKind(t, name, err, cofferdam.Invalid)
	}
	spec := good
	spec.Tier = "stronger"
	_, err := s.Create(ctx, spec)
	wantKind(t, "unknown tier", err, cofferdam.Unavailable)
	if cofferdam.HintOf(err) == "" {
		t.Error("the refusal has no hint")
	}
	if listed(t, s, good.ID) {
		t.Error("a refused box is listed")
	}
}

func testResults(t *testing.T, s *subject) {
	b := s.box(t, nil)
	tests := []struct {
		name           string
		c              sandbox.Command
		exit, signal   int
		stdout, stderr string
	}{
		{"streams apart", sandbox.Command{Shell: "echo out; echo err >&2; exit 3"}, 3, 0, "out\n", "err\n"},
		{"arguments", sandbox.Command{Argv: []string{"printf", "%s|", "a b", "", "$HOME"}}, 0, 0, "a b||$HOME|", ""},
		{"no input ends at once (BR-02)", sandbox.Command{Argv: []string{"cat"}}, 0, 0, "", ""},
		{"no input of a background job (BR-02)", sandbox.Command{Shell: "cat & wait; echo over"}, 0, 0, "over\n", ""},
		{"missing program", sandbox.Command{Argv: []string{"no-such-program"}}, 127, 0, "", ""},
		{"not executable", sandbox.Command{Argv: []string{"/etc/passwd"}}, 126, 0, "", ""},
		{"missing folder", sandbox.Command{Argv: []string{"true"}, Dir: "/no/such"}, 126, 0, "", ""},
		{"signal", sandbox.Command{Shell: "kill -KILL $$"}, 137, 9, "", ""},
		{"environment", sandbox.Command{Shell: "echo $A $USER $HOME $TMPDIR", Env: []string{"A=1"}}, 0, 0, "1 agent /home/agent /tmp\n", ""},
		{"folder", sandbox.Command{Argv: []string{"pwd"}}, 0, 0, "/work\n", ""},
		{"another folder", sandbox.Command{Argv: []string{"pwd"}, Dir: "/usr"}, 0, 0, "/usr\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, stdout, stderr := b.do(t, tt.c)
			if r.Exit != tt.exit || r.Signal != tt.signal || stdout != tt.stdout || stderr != tt.stderr || r.Lost || r.TimedOut {
				t.Errorf("%+v\nstdout %q, stderr %q", r, stdout, stderr)
			}
			if r.Exit > 125 && r.Reason == "" {
				t.Error("no reason")
			}
		})
	}
	for name, c := range map[string]sandbox.Command{
		"no id": {Argv: []string{"true"}}, "nothing": {ID: "a"}, "both": {ID: "a", Argv: []string{"true"}, Shell: "true"},
		"long shell": {ID: "a", Shell: strings.Repeat("x", 65537)}, "zero byte": {ID: "a", Argv: []string{"a\x00b"}},
	} {
		wantKind(t, name, b.Start(testContext(t), c), cofferdam.Invalid)
	}
	wantKind(t, "kill nobody", b.Kill(testContext(t), "nobody"), cofferdam.NotFound)
	wantKind(t, "write to nobody", b.Write(testContext(t), "nobody", []byte("x"), true), cofferdam.NotFound)
	_, err := b.Attach(testContext(t), "nobody", sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { return nil })
	wantKind(t, "attach to nobody", err, cofferdam.NotFound)
	c := sandbox.Command{ID: "once", Shell: "echo ran >>ran"}
	for range 3 {
		b.start(t, c)
	}
	b.do(t, c)
	if got := b.shell(t, "cat ran"); got != "ran\n" {
		t.Errorf("starting a command three times: %q", got)
	}
}

func testInput(t *testing.T, s *subject) {
	ctx := testContext(t)
	b := s.box(t, nil)
	in := pattern(1 << 20)
	b.start(t, sandbox.Command{ID: "cat", Argv: []string{"cat"}, Stdin: true})
	go func() {
		for p := in; len(p) > 0; p = p[min(len(p), 100_000):] {
			if err := b.Write(ctx, "cat", p[:min(len(p), 100_000)], false); err != nil {
				t.Errorf("write: %v", err)
				return
			}
		}
		if err := b.Write(ctx, "cat", nil, true); err != nil {
			t.Errorf("end input: %v", err)
		}
	}()
	var out bytes.Buffer
	if r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "cat", Argv: []string{"cat"}, Stdin: true}, &out, nil); err != nil || r.Exit != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if !bytes.Equal(out.Bytes(), in) {
		t.Errorf("%d of %d bytes came back, or other ones", out.Len(), len(in))
	}
	wantKind(t, "write after the end", b.Write(ctx, "cat", []byte("x"), false), cofferdam.Conflict)
	b.start(t, sandbox.Command{ID: "head", Shell: "head -c 2", Stdin: true})
	if err := b.Write(ctx, "head", []byte("hi"), true); err != nil {
		t.Errorf("write: %v", err)
	}
	if _, stdout, _ := b.do(t, sandbox.Command{ID: "head", Shell: "head -c 2", Stdin: true}); stdout != "hi" {
		t.Errorf("got %q", stdout)
	}
}

// pattern is n bytes, not UTF-8, in which every place differs from its neighbours.
func pattern(n int) []byte {
	p := make([]byte, 0, n+32)
	for i := 0; len(p) < n; i++ {
		p = fmt.Appendf(p, "%x\xff\x00\n", i)
	}
	return p[:n]
}

func testBytes(t *testing.T, s *subject) {
	b := s.box(t, nil)
	if _, stdout, _ := b.do(t, sandbox.Command{Argv: []string{"printf", "%s", "\xff\xfe☕\x80"}}); stdout != "\xff\xfe☕\x80" {
		t.Errorf("argument came back as %q", stdout)
	}
	if _, stdout, _ := b.do(t, sandbox.Command{Argv: []string{"sh", "-c", `printf %s "$A"`}, Env: []string{"A=\xff☕"}}); stdout != "\xff☕" {
		t.Errorf("variable came back as %q", stdout)
	}
	argv := []string{"sh", "-c", `for a; do printf %s "$a"; done | wc -c`, "sh"}
	for range 15 {
		argv = append(argv, strings.Repeat("y", 100_000))
	}
	if r, stdout, stderr := b.do(t, sandbox.Command{Argv: argv}); strings.TrimSpace(stdout) != "1500000" {
		t.Errorf("1.5 MB of arguments: %+v %q %q", r, stdout, stderr)
	}
	for range 10 { // BR-29: the tail of a command that ends fast
		if _, stdout, _ := b.do(t, sandbox.Command{Shell: "seq 1 100000"}); len(stdout) != 588895 {
			t.Errorf("%d bytes, want 588895", len(stdout))
		}
		if _, stdout, _ := b.do(t, sandbox.Command{Shell: "head -c 66890 /dev/zero"}); len(stdout) != 66890 {
			t.Errorf("%d bytes, want 66890", len(stdout))
		}
	}
}

func testFolders(t *testing.T, s *subject) {
	b := s.box(t, func(spec *sandbox.Spec) {
		spec.Files = []sandbox.File{
			{Path: "/etc/cofferdam-test/one", Data: []byte("one\xff")},
			{Path: "/etc/cofferdam-test-script", Data: []byte("#!/bin/sh\necho ran\n"), Mode: 0o555},
			{Path: "/etc/cofferdam-test/shared", Data: []byte("shared\n"), Shared: true},
			{Path: "/etc/cofferdam-link", Link: "/etc/cofferdam-test/shared"},
		}
	})
	b.shell(t, `set -e
		for d in /work /tmp "$HOME"; do echo x >$d/file; mkdir $d/dir; mv $d/file $d/dir/other; rm -r $d/dir; done
		test "$(pwd)" = /work; test -z "$(ls -A /work)"; test -d /env`)
	if got := b.shell(t, "cat /etc/cofferdam-test/one"); got != "one\xff" {
		t.Errorf("file %q", got)
	}
	if got := b.shell(t, "/etc/cofferdam-test-script"); got != "ran\n" {
		t.Errorf("script %q", got)
	}
	if got := b.shell(t, "cat /etc/cofferdam-link; readlink /etc/cofferdam-link"); got != "shared\n/etc/cofferdam-test/shared\n" {
		t.Errorf("shared file by a link %q", got)
	}
}

// testDevices is BR-26 without a terminal.
func testDevices(t *testing.T, s *subject) {
	b := s.box(t, nil)
	for text, want := range map[string]string{
		`cat <(echo A)`: "A\n",
		`n=0; while read l; do n=$((n+1)); done < <(printf 'a\nb\n'); echo $n`:           "2\n",
		`echo x | tee >(cat >g) >/dev/null; until test -s g; do sleep 0.05; done; cat g`: "x\n",
		`echo hi | cat /dev/stdin`:                                      "hi\n",
		`echo x >f; exec 3<f; cat /dev/fd/3`:                            "x\n",
		`echo a >/dev/stdout; echo b >/dev/fd/1`:                        "a\nb\n",
		`head -c 4 /dev/zero | od -An -tx1`:                             " 00 00 00 00\n",
		`test -c /dev/null && test -c /dev/urandom && test -w /dev/shm`: "",
	} {
		r, stdout, stderr := b.do(t, sandbox.Command{Argv: []string{"bash", "-c", text}})
		if r.Exit != 0 || stdout != want {
			t.Errorf("%s\nexit %d, %q, %q; want %q", text, r.Exit, stdout, stderr, want)
		}
	}
	if _, _, stderr := b.do(t, sandbox.Command{Shell: "echo e >/dev/stderr"}); stderr != "e\n" {
		t.Errorf("/dev/stderr: %q", stderr)
	}
}

func testEnvironment(t *testing.T, s *subject) {
	env := filepath.Join(t.TempDir(), "env.img")
	made, err := s.Create(testContext(t), sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host", Env: env, SetupPhase: true,
		Limits: cofferdam.Limits{Disk: 256 << 20},
	})
	if err != nil {
		if s.offers(t, sandbox.CanSetup, err) {
			t.Fatalf("create: %v (%s)", err, cofferdam.HintOf(err))
		}
		return
	}
	setup := &testBox{made}
	setup.shell(t, "mkdir /env/bin && printf '#!/bin/sh\necho tool\n' >/env/bin/tool && chmod 755 /env/bin/tool")
	if err := setup.Destroy(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // at the same time: both are readers
		b := s.box(t, func(spec *sandbox.Spec) { spec.Env = env })
		if got := b.shell(t, "/env/bin/tool"); got != "tool\n" {
			t.Errorf("got %q", got)
		}
		if r, _, _ := b.do(t, sandbox.Command{Shell: "echo x >/env/bin/tool || touch /env/y"}); r.Exit == 0 {
			t.Error("/env is writable outside of the setup phase")
		}
	}
}

func testTwoBoxes(t *testing.T, s *subject) {
	one, two := s.box(t, nil), s.box(t, nil)
	one.shell(t, `echo canary >/work/canary; echo canary >"$HOME/canary"`)
	if got := two.shell(t, `ls -A /work "$HOME" | grep canary || :`); got != "" {
		t.Errorf("the second box sees %q", got)
	}
	if err := one.Destroy(testContext(t)); err != nil {
		t.Fatal(err)
	}
	two.shell(t, "true")
}

func testWire(t *testing.T, s *subject) {
	ctx := testContext(t)
	b := s.box(t, nil)
	if !s.bounded() {
		_, err := b.Wire(ctx)
		wantKind(t, "wire", err, cofferdam.Unavailable)
		return
	}
	first, err := b.Wire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := b.Wire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	b.start(t, sandbox.Command{ID: "send", Shell: "exec bash -c 'while :; do echo x >/dev/udp/10.99.0.1/53; sleep 0.05; done'"})
	if err := second.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 1<<16)
	if n, err := second.Read(frame); err != nil || n < 14 {
		t.Errorf("the fresh queue gave %d bytes, %v", n, err)
	}
	if err := first.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for { // what came before it was detached may still be there
		if _, err := first.Read(frame); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, io.EOF) {
				t.Logf("the detached queue: %v", err)
			}
			break
		}
	}
	if err := b.Kill(ctx, "send"); err != nil {
		t.Error(err)
	}
}
