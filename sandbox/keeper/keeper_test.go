package keeper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestMain lets this binary be the client that is killed, and the stranger.
func TestMain(m *testing.M) {
	switch os.Getenv("KEEPER_TEST_CLIENT") {
	case "server":
		os.Exit(workAsServer())
	case "attach":
		os.Exit(attachAndPrint())
	case "stranger":
		_, err := Dial(context.Background(), os.Getenv("KEEPER_TEST_SOCKET"))
		fmt.Print(cofferdam.KindOf(err), ": ", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveOn offers drivers on a fresh socket until the test or stop ends.
func serveOn(t testing.TB, drivers map[sandbox.Tier]sandbox.Driver) (path string, stop func()) {
	t.Helper()
	return runOn(t, newServer(drivers, Options{}))
}

func runOn(t testing.TB, s *server) (path string, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // so that strangers come as far as us
		t.Fatal(err)
	}
	path = filepath.Join(dir, "keeper.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("serve does not end")
		}
	}
	t.Cleanup(stop)
	return path, stop
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(testContext(t), path)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return c
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// fake returns a driver with real processes.
func fake(t *testing.T) *sandboxtest.Fake {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the driver for tests makes mounts and a pid namespace")
	}
	f, err := sandboxtest.NewFake(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func newBox(t *testing.T, d sandbox.Driver) sandbox.Box {
	t.Helper()
	b, err := d.Create(testContext(t), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host"})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return b
}

func TestSuiteOverTheSocket(t *testing.T) {
	path, _ := serveOn(t, map[sandbox.Tier]sandbox.Driver{sandbox.None: fake(t)})
	client := dial(t, path)
	sandboxtest.Suite(t, func(*testing.T) sandbox.Driver { return client })
}

// attachAndPrint is the other process: it notes each chunk in a file before it
// acknowledges it, as a server does with its trace.
func attachAndPrint() int {
	ctx := context.Background()
	c, err := Dial(ctx, os.Getenv("KEEPER_TEST_SOCKET"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b, err := c.Open(ctx, cofferdam.BoxID(os.Getenv("KEEPER_TEST_BOX")))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	from, _ := strconv.ParseInt(os.Getenv("KEEPER_TEST_FROM"), 10, 64)
	f, err := os.OpenFile(os.Getenv("KEEPER_TEST_FILE"), os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, err = b.Attach(ctx, "seq", sandbox.Offsets{Stdout: from}, func(_ sandbox.Stream, off int64, p []byte) error {
		time.Sleep(5 * time.Millisecond) // who kills it may be slow
		_, err := f.WriteAt(p, off)
		return err
	})
	fmt.Fprintln(os.Stderr, "attachment ended:", err)
	return 0
}

// TestClientKilled kills clients with signal 9 in the middle of Attach: the next
// goes on where the last had noted, and nothing is missing or twice there.
func TestClientKilled(t *testing.T) {
	path, _ := serveOn(t, map[sandbox.Tier]sandbox.Driver{sandbox.None: fake(t)})
	b := newBox(t, dial(t, path))
	const count = 12_000_000 // 97 MiB, more than a journal holds
	if err := b.Start(testContext(t), sandbox.Command{ID: "seq", Argv: []string{"seq", "1", strconv.Itoa(count)}}); err != nil {
		t.Fatal(err)
	}
	got := filepath.Join(t.TempDir(), "got")
	if err := os.WriteFile(got, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		fi, err := os.Stat(got)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	kills := 0
	for size() < 60<<20 {
		from := size()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "KEEPER_TEST_CLIENT=attach", "KEEPER_TEST_SOCKET="+path, "KEEPER_TEST_BOX="+string(b.ID()),
			"KEEPER_TEST_FILE="+got, fmt.Sprintf("KEEPER_TEST_FROM=%d", from))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		goal := from + 1 + rand.Int64N(8<<20)
		for deadline := time.Now().Add(30 * time.Second); size() < goal && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // polls another process's file
		}
		cmd.Process.Kill()
		cmd.Wait()
		kills++
	}
	f, err := os.OpenFile(got, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err = dial(t, path).Open(testContext(t), b.ID()) // the clients that were killed had claimed the keeper
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Attach(testContext(t), "seq", sandbox.Offsets{Stdout: size()}, func(_ sandbox.Stream, off int64, p []byte) error {
		if off != size() {
			return fmt.Errorf("chunk at %d after %d bytes", off, size())
		}
		_, err := f.WriteAt(p, off)
		return err
	})
	if err != nil || r.Exit != 0 || r.Stdout != size() {
		t.Fatalf("%+v, %v, %d bytes", r, err, size())
	}
	h, want := sha256.New(), sha256.New()
	var line []byte
	for i := 1; i <= count; i++ {
		line = append(strconv.AppendInt(line[:0], int64(i), 10), '\n')
		want.Write(line)
	}
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size())); err != nil || !bytes.Equal(h.Sum(nil), want.Sum(nil)) {
		t.Errorf("the output is not what seq prints: %v", err)
	}
	if kills < 5 {
		t.Errorf("only %d clients were killed", kills)
	}
}

func TestStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: becomes another user")
	}
	path, _ := serveOn(t, nil)
	program := filepath.Join(filepath.Dir(path), "stranger")
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.Env = []string{"KEEPER_TEST_CLIENT=stranger", "KEEPER_TEST_SOCKET=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "forbidden: call keeper: it serves user 0 only, and you are user 1000" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestVersions(t *testing.T) {
	t.Run("client of another version", func(t *testing.T) {
		path, _ := serveOn(t, nil)
		conn := rawDial(t, path)
		if err := writeJSON(conn, hello{Protocol: protocolName, Version: 7}); err != nil {
			t.Fatal(err)
		}
		var h hello
		f, err := readFrame(conn)
		if err != nil || f.json(&h) != nil {
			t.Fatal(err)
		}
		err = h.Error.unpack()
		if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "this keeper speaks version 4 of the keeper protocol, the caller version 7") {
			t.Errorf("got %v", err)
		}
	})
	for name, first := range map[string]string{
		"is a keeper of a newer release: it speaks version 9":  `{"protocol":"cofferdam-keeper","version":9}`,
		"is a keeper of an older release: it speaks version 2": `{"protocol":"cofferdam-keeper","version":2,"error":{"kind":"unavailable","reason":"versions"}}`,
		"does not speak the":       `{"protocol":"other"}`,
		"keeper protocol broken":   `nonsense`,
		"it went away during the ": ``,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if first != "" {
					conn.Write(append(frameHeader(kindJSON, len(first)), first...))
				}
				conn.(*net.UnixConn).CloseWrite()
				io.Copy(io.Discard, conn)
				conn.Close()
			}()
			_, err = Dial(testContext(t), path)
			if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v (%s)", err, cofferdam.HintOf(err))
			}
			if strings.Contains(name, "older") && !strings.Contains(cofferdam.HintOf(err), fmt.Sprintf("kill -TERM %d", os.Getpid())) {
				t.Errorf("the hint does not say what to do: %s", cofferdam.HintOf(err))
			}
		})
	}
}

func TestNoKeeper(t *testing.T) {
	_, err := Dial(testContext(t), filepath.Join(t.TempDir(), "none"))
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(cofferdam.HintOf(err), "cofferdam doctor") {
		t.Errorf("got %v (%s)", err, cofferdam.HintOf(err))
	}
}

func rawDial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// TestNonsense sends what no client sends; the keeper answers or hangs up, and
// serves the next.
func TestNonsense(t *testing.T) {
	path, _ := serveOn(t, nil)
	helloFrame := new(bytes.Buffer)
	if err := writeJSON(helloFrame, hello{Protocol: protocolName, Version: Version}); err != nil {
		t.Fatal(err)
	}
	after := func(s string) []byte { return append(bytes.Clone(helloFrame.Bytes()), s...) }
	requestOf := func(v any) []byte {
		var b bytes.Buffer
		if err := writeJSON(&b, v); err != nil {
			t.Fatal(err)
		}
		return after(b.String())
	}
	for name, in := range map[string][]byte{
		"text":             []byte("GET / HTTP/1.1\r\n\r\n"),
		"zeros":            make([]byte, 100),
		"huge length":      {0xff, 0xff, 0xff, 0xff, 1, 'x'},
		"half a frame":     helloFrame.Bytes()[:7],
		"data first":       after("\x00\x00\x00\x0b\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00x"),
		"unknown kind":     after("\x00\x00\x00\x01\x09"),
		"not an object":    after("\x00\x00\x00\x03\x01[]"),
		"unknown call":     requestOf(map[string]string{"op": "melt"}),
		"wrong type":       requestOf(map[string]int{"op": 3}),
		"no spec":          requestOf(request{Op: opCreate}),
		"start of nothing": requestOf(request{Op: opStart, Box: "b-nobody"}),
	} {
		conn := rawDial(t, path)
		if _, err := conn.Write(in); err != nil {
			t.Logf("%s: %v", name, err)
		}
		conn.CloseWrite()
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: neither answered nor hung up", name)
		}
	}
	dial(t, path)
}

func TestSilentAndTooMany(t *testing.T) {
	s := newServer(nil, Options{})
	s.slots, s.patience = make(chan struct{}, 2), 5*time.Second
	path, _ := runOn(t, s)
	silent := []*net.UnixConn{rawDial(t, path), rawDial(t, path)}
	for len(s.slots) < 2 { // the keeper has seen both
		time.Sleep(time.Millisecond)
	}
	if _, err := Dial(testContext(t), path); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(err.Error(), "2 calls are under way") {
		t.Errorf("one call too many: %v", err)
	}
	for _, conn := range silent {
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("who says nothing keeps its place")
		}
	}
	dial(t, path)
}

// TestServe runs the exported door once: it ends with its context, and the
// socket is gone then.
func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error)
	go func() { done <- Serve(ctx, l, nil, Options{}) }()
	c := dial(t, path)
	if list, err := c.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	_, err = c.Create(ctx, sandbox.Spec{ID: "b-1", Tier: sandbox.GVisor})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
		t.Errorf("create without a driver: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	for kind := range cofferdam.Kinds() {
		e := &cofferdam.Error{Op: "a.B", Kind: kind, Subject: "s", Reason: "r", Hint: "h", Err: errors.New("cause")}
		b, err := json.Marshal(packError(fmt.Errorf("wrapped: %w", e)))
		if err != nil {
			t.Fatal(err)
		}
		var w wireError
		if err := json.Unmarshal(b, &w); err != nil {
			t.Fatal(err)
		}
		var got *cofferdam.Error
		if !errors.As(w.unpack(), &got) || got.Kind != kind || got.Op != "a.B" || got.Error() != "s: r" || got.Hint != "h" || got.Err.Error() != "cause" {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	if err := packError(errors.New("plain")).unpack(); cofferdam.KindOf(err) != cofferdam.Internal || err.Error() != "plain" {
		t.Errorf("plain error: %v", err)
	}
}

func TestDetachByContext(t *testing.T) {
	path, stop := serveOn(t, map[sandbox.Tier]sandbox.Driver{sandbox.None: fake(t)})
	b := newBox(t, dial(t, path))
	if err := b.Start(testContext(t), sandbox.Command{ID: "s", Shell: "echo one; while ! test -e go; do sleep 0.02; done; echo two"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	_, err := b.Attach(ctx, "s", sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("attach: %v", err)
	}
	if err := b.Start(testContext(t), sandbox.Command{ID: "go", Shell: "touch go"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if r, err := sandbox.Run(testContext(t), b, sandbox.Command{ID: "s", Shell: "x"}, &out, nil); err != nil || r.Exit != 0 || out.String() != "one\ntwo\n" {
		t.Errorf("%+v, %v, %q", r, err, out.String())
	}
	if err := b.Start(testContext(t), sandbox.Command{ID: "long", Shell: "sleep 1000"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := b.Attach(context.Background(), "long", sandbox.Offsets{}, nil)
		ended <- err
	}()
	stop() // the keeper ends in the middle
	if err := <-ended; cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("attach to a keeper that ended: %v", err)
	}
}

// TestGreetsAndSaysNothing: a keeper that is stopped between its greeting and its
// answer holds up nobody who asks who it is; the error names its process.
func TestGreetsAndSaysNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_ = writeJSON(conn, hello{Protocol: protocolName, Version: Version})
		}
	}()
	_, err = Look(testContext(t), path) // has no bound of its own before that of the test
	if !errors.Is(err, errHangs) || !strings.Contains(err.Error(), fmt.Sprintf("process %d does not answer within %s", os.Getpid(), firstWords)) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(cofferdam.HintOf(err), fmt.Sprintf("kill -CONT %d", os.Getpid())) {
		t.Errorf("hint %q", cofferdam.HintOf(err))
	}
}
