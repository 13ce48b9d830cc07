package network

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// TestMissingProgram: a run whose gateways are not there is refused before its
// command begins, and so is one whose gateways are no program.
func TestMissingProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cofferdam-wire")
	for range 2 {
		_, err := Program{File: file}.Open(context.Background(), Setup{}, nil)
		if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeardReason: a full disk that another program tells of in words is one.
func TestHeardReason(t *testing.T) {
	err := heardReason("authority: write ca.pem: " + unix.ENOSPC.Error())
	if !errors.Is(err, unix.ENOSPC) || err.Error() != "authority: write ca.pem: "+unix.ENOSPC.Error() {
		t.Errorf("%v", err)
	}
	if err := heardReason("it is no authority"); errors.Is(err, unix.ENOSPC) || err.Error() != "it is no authority" {
		t.Errorf("%v", err)
	}
}

// TestHeldProgram: what is started is what was there before the command began,
// whatever the command makes of that file, of its name or of another name of it.
func TestHeldProgram(t *testing.T) {
	made := t.TempDir()
	elsewhere := t.TempDir()
	overwrite := func(t *testing.T, file string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("theirs"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		writes string
		change func(t *testing.T, file string)
	}{
		"another file of its name": {"", func(t *testing.T, file string) {
			overwrite(t, file+"-new")
			if err := os.Rename(file+"-new", file); err != nil {
				t.Fatal(err)
			}
		}},
		"written":              {made, overwrite},
		"written by a link":    {elsewhere, func(t *testing.T, file string) { overwrite(t, filepath.Join(elsewhere, "written by a link")) }},
		"in a writable folder": {filepath.Dir(made), overwrite},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(made, name)
			if err := os.WriteFile(file, []byte("ours"), 0o700); err != nil {
				t.Fatal(err)
			}
			if c.writes == elsewhere {
				if err := os.Link(file, filepath.Join(elsewhere, name)); err != nil {
					t.Fatal(err)
				}
			}
			w, err := Program{File: file, Writes: []string{c.writes}}.Open(context.Background(), Setup{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.change(t, file)
			text, err := os.ReadFile(inProc(w.(*far).held))
			if err != nil || string(text) != "ours" {
				t.Errorf("%q would be started, %v", text, err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEndBeforeSetup: a box that ends while the program starts is not taken for one
// of another release: the program is told what it serves, and then that it is over.
func TestEndBeforeSetup(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "talk"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	run, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	talk, err := run.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	program, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	f := &far{talk: talk, setup: Setup{Version: Version}, patience: endPatience}
	f.End()
	if err := f.tell(); err != nil {
		t.Fatal(err)
	}
	var s Setup
	if err := Receive(program, &s); err != nil || s.Version != Version {
		t.Errorf("%+v, %v", s, err)
	}
	var a Answer
	if err := Receive(program, &a); err != nil || !a.End {
		t.Errorf("%+v, %v", a, err)
	}
	talk.Close()
}

// TestReason: a record says how the program ended, not that it could not be heard
// any more, unless it has said by itself why it does not serve.
func TestReason(t *testing.T) {
	cut, said := &os.PathError{Op: "read", Path: "talk", Err: unix.ECONNRESET}, &cofferdam.Error{Reason: "another release"}
	killed := errors.New("signal: killed")
	for _, c := range []struct{ talk, ended, want error }{
		{nil, nil, nil}, {nil, killed, killed}, {cut, killed, killed}, {cut, nil, cut}, {said, killed, said},
	} {
		if got := reason(c.talk, c.ended); got != c.want {
			t.Errorf("%v and %v: %v", c.talk, c.ended, got)
		}
	}
}
