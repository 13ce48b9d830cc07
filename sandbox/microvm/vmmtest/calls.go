package vmmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox/microvm/vmm"
)

// Serve has a stub answer, until the test ends, on the socket that dial connects to.
func Serve(t testing.TB, stub *Stub) (dial func(context.Context) (*os.File, error)) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: stub}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { server.Close() })
	return func(ctx context.Context) (*os.File, error) { return vmm.Dial(ctx, dir, "/s", os.Getuid()) }
}

// Broken has each of calls, "METHOD /path" as the stub sees them, fail in each way
// while ask makes them: the error names the call, below prefix, and nothing is asked
// after it.
func Broken(t *testing.T, prefix string, calls []string, ask func(faults map[string]string) (*Stub, error)) {
	t.Helper()
	for _, call := range calls {
		for fault, kind := range map[string]cofferdam.Kind{Close: cofferdam.Unavailable, Endless: cofferdam.Unavailable, Refuse: cofferdam.Invalid} {
			stub, err := ask(map[string]string{call: fault})
			said := fmt.Sprint(err)
			if cofferdam.KindOf(err) != kind || !strings.Contains(said, strings.Replace(call, prefix, "", 1)) || strings.ContainsAny(said, "\n\x1b") {
				t.Errorf("%s, %s: %v", call, fault, err)
			}
			if asked := stub.Asked(); asked[len(asked)-1] != call {
				t.Errorf("%s, %s: asked on: %q", call, fault, asked)
			}
		}
	}
}

// Drives makes empty disks in dir; the one named work can be written.
func Drives(t testing.TB, dir string, serials ...string) (list []vmm.Drive) {
	t.Helper()
	for _, serial := range serials {
		f, err := os.Create(filepath.Join(dir, serial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		list = append(list, vmm.Drive{Serial: serial, File: f, Writable: serial == "work"})
	}
	return list
}

// patience is how long a stub may take for a word: it is here at once but on a host
// that is overloaded.
const patience = time.Minute

// Echo wants an answer over a new line to pid 1.
func Echo(t testing.TB, r vmm.Running) {
	t.Helper()
	line, err := r.Line(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	got := make([]byte, 5)
	err = line.SetDeadline(time.Now().Add(patience))
	_, err1 := line.WriteString("hello")
	_, err2 := io.ReadFull(line, got)
	if err := errors.Join(err, err1, err2); err != nil || string(got) != "hello" {
		t.Errorf("pid 1 answers %q, %v", got, err)
	}
}

// Prints wants a text on a machine's console.
func Prints(t testing.TB, console *os.File, want string) {
	t.Helper()
	text := make([]byte, 4096)
	err := console.SetReadDeadline(time.Now().Add(patience))
	n, err1 := console.Read(text)
	if err := errors.Join(err, err1); err != nil || !strings.Contains(string(text[:n]), want) {
		t.Errorf("its console: %q, %v", text[:n], err)
	}
}
