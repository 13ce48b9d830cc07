package guest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// scripted is a pid 1 played by the test.
type scripted struct {
	*guest.Host
	in   *guest.Reader // what the host says, from pipe
	pipe *os.File
	out  *os.File // what we say
}

func newScripted(t *testing.T, hello string) *scripted {
	t.Helper()
	toInit, w := pipe(t)
	r, fromInit := pipe(t)
	h, err := guest.NewHost(w, r, filepath.Join(t.TempDir(), "j"), guest.Options{Config: guest.Config{UID: 1, GID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close("test over"); toInit.Close(); fromInit.Close() })
	s := &scripted{Host: h, in: guest.NewReader(toInit, guest.MaxStart), pipe: toInit, out: fromInit}
	s.want(t, guest.KindConfig)
	s.say(guest.KindHello, 0, hello)
	return s
}

func (s *scripted) say(k guest.Kind, command uint32, payload string) {
	s.out.Write(guest.AppendFrame(nil, guest.Frame{Kind: k, Command: command, Payload: []byte(payload)}))
}

// want reads frames up to one of kind k.
func (s *scripted) want(t *testing.T, k guest.Kind) guest.Frame {
	t.Helper()
	for {
		f, err := s.in.Next()
		if err != nil {
			t.Fatalf("waiting for kind %d: %v", k, err)
		}
		if f.Kind == k {
			return f
		}
	}
}

func TestHostileGuest(t *testing.T) {
	limit := func(n int64) string { return string(guest.AppendLimit(nil, guest.Limit{Offset: n})) }
	tests := map[string]func(s *scripted){
		"a command nobody started":   func(s *scripted) { s.say(guest.KindExit, 2, `{"exit":0}`) },
		"command 0":                  func(s *scripted) { s.say(guest.KindOutput, 0, "\x01x") },
		"command of a large number":  func(s *scripted) { s.say(guest.KindOutput, 1<<31, "\x01x") },
		"second hello":               func(s *scripted) { s.say(guest.KindHello, 0, `{"version":2}`) },
		"unknown kind":               func(s *scripted) { s.say(99, 1, "") },
		"the host's own kind":        func(s *scripted) { s.say(guest.KindStart, 1, "") },
		"stream 3":                   func(s *scripted) { s.say(guest.KindOutput, 1, "\x03x") },
		"stream 0":                   func(s *scripted) { s.say(guest.KindOutput, 1, "\x00x") },
		"empty output":               func(s *scripted) { s.say(guest.KindOutput, 1, "\x01") },
		"large frame":                func(s *scripted) { s.say(guest.KindOutput, 1, strings.Repeat("x", guest.ChunkSize+2)) },
		"length of 4 GiB":            func(s *scripted) { s.out.WriteString("\xff\xff\xff\xff\x42\x00\x00\x00\x01") },
		"length below 5":             func(s *scripted) { s.out.WriteString("\x00\x00\x00\x04\x42\x00\x00\x00\x01") },
		"output after its end":       func(s *scripted) { s.say(guest.KindOutputEnd, 1, "\x01"); s.say(guest.KindOutput, 1, "\x01x") },
		"an end twice":               func(s *scripted) { s.say(guest.KindOutputEnd, 1, "\x01"); s.say(guest.KindOutputEnd, 1, "\x01") },
		"exit twice":                 func(s *scripted) { s.say(guest.KindExit, 1, `{"exit":0}`); s.say(guest.KindExit, 1, `{"exit":0}`) },
		"exit 256":                   func(s *scripted) { s.say(guest.KindExit, 1, `{"exit":256}`) },
		"exit that is no JSON":       func(s *scripted) { s.say(guest.KindExit, 1, "\xff") },
		"input limit of the future":  func(s *scripted) { s.say(guest.KindStdinLimit, 1, limit(guest.Window+1)) },
		"input limit that goes back": func(s *scripted) { s.say(guest.KindStdinLimit, 1, limit(-1)) },
		"rest that nobody asked for": func(s *scripted) { s.say(guest.KindIsQuiet, 0, "") },
		"awake without a reason":     func(s *scripted) { s.say(guest.KindAwake, 0, "{}") },
		"rest that was never asked of it": func(s *scripted) {
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.Quiet(gone) // told or not: who asked has gone away
			for range 3 {
				s.say(guest.KindIsQuiet, 0, "")
			}
		},
		"half a frame": func(s *scripted) { s.out.WriteString("\x00\x00"); s.out.Close() },
		"more output than allowed": func(s *scripted) {
			for range 3 * guest.Window / guest.ChunkSize { // nobody reads it beyond the journal's window
				s.say(guest.KindOutput, 1, "\x01"+strings.Repeat("x", guest.ChunkSize))
			}
			s.say(guest.KindOutput, 1, "\x03")
		},
	}
	for name, attack := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, `{"version":2,"pid":1}`)
			if err := s.Ready(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(testContext(t), sandbox.Command{ID: "a", Argv: []string{"x"}, Stdin: true}); err != nil {
				t.Fatal(err)
			}
			s.want(t, guest.KindStart)
			s.say(guest.KindOutput, 1, "\x02before")
			go func() { // whatever the host still says
				for {
					if _, err := s.in.Next(); err != nil {
						return
					}
				}
			}()
			go attack(s)
			var errs bytes.Buffer
			r, err := s.Attach(testContext(t), "a", sandbox.Offsets{}, func(w sandbox.Stream, _ int64, p []byte) error {
				if w == sandbox.Stderr {
					errs.Write(p)
				}
				return nil
			})
			if err != nil || !r.Lost || r.Reason == "" || !strings.HasPrefix(errs.String(), "before") {
				t.Errorf("%+v, %v, %q", r, err, errs.String())
			}
		})
	}
}

func TestHelloOfAnotherVersion(t *testing.T) {
	s := newScripted(t, `{"version":1,"pid":1}`)
	err := s.Ready(testContext(t))
	if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), "speaks version 1 of the protocol, this program version 2") || cofferdam.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
	s = newScripted(t, `{"version":2,"error":"no luck"}`)
	if err := s.Ready(testContext(t)); err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("got %v", err)
	}
	s = newScripted(t, "nonsense")
	if err := s.Ready(testContext(t)); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestRootIsRefused(t *testing.T) {
	_, err := guest.NewHost(nil, nil, t.TempDir(), guest.Options{})
	if cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("got %v", err)
	}
}

func TestStartFrame(t *testing.T) {
	want := guest.Start{Stdin: true, Dir: "/\xff", Argv: []string{"a", "", "\xfe"}, Env: []string{"A=b"}}
	b := guest.AppendStart(nil, want)
	got, err := guest.ParseStart(b)
	if err != nil || got.Dir != want.Dir || strings.Join(got.Argv, "|") != "a||\xfe" || got.Env[0] != "A=b" || !got.Stdin {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range b {
		if _, err := guest.ParseStart(b[:i]); !errors.Is(err, guest.ErrProtocol) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, err := guest.ParseStart(append(b, 0)); !errors.Is(err, guest.ErrProtocol) {
		t.Errorf("with a tail: %v", err)
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add(guest.AppendStart(nil, guest.Start{Dir: "/", Argv: []string{"a"}, Env: []string{"A=b"}}))
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := guest.ParseStart(p)
		if err == nil && !bytes.Equal(guest.AppendStart(nil, s), p) {
			t.Errorf("%q does not come back", p)
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add(guest.AppendFrame(nil, guest.Frame{Kind: 1, Command: 2, Payload: []byte("x")}))
	f.Fuzz(func(t *testing.T, p []byte) {
		r := guest.NewReader(bytes.NewReader(p), 1024)
		var back []byte
		for {
			frame, err := r.Next()
			if err != nil {
				break
			}
			back = guest.AppendFrame(back, frame)
		}
		if !bytes.HasPrefix(p, back) {
			t.Errorf("%q became %q", p, back)
		}
	})
}

// TestBounds starts as many commands as a box takes.
func TestBounds(t *testing.T) {
	s := newScripted(t, `{"version":2,"pid":1}`)
	go func() { // a pid 1 that ends each command when its input is closed
		for {
			f, err := s.in.Next()
			if err != nil {
				return
			}
			if f.Kind == guest.KindStdinEnd {
				s.say(guest.KindOutputEnd, f.Command, "\x01")
				s.say(guest.KindOutputEnd, f.Command, "\x02")
				s.say(guest.KindExit, f.Command, `{"exit":0}`)
			}
		}
	}()
	ctx := testContext(t)
	start := func(i int) error {
		return s.Start(ctx, sandbox.Command{ID: execID(i), Argv: []string{"x"}, Stdin: true})
	}
	end := func(i int) {
		if err := s.Write(ctx, execID(i), nil, true); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Attach(ctx, execID(i), sandbox.Offsets{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range guest.MaxRunning {
		if err := start(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := start(guest.MaxRunning); cofferdam.KindOf(err) != cofferdam.Exhausted || cofferdam.HintOf(err) == "" {
		t.Errorf("one running command too many: %v", err)
	}
	for i := range guest.MaxRunning {
		end(i)
	}
	for i := guest.MaxRunning; i < guest.MaxCommands; i++ {
		if err := start(i); err != nil {
			t.Fatal(err)
		}
		end(i)
	}
	if err := start(guest.MaxCommands); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(err.Error(), "16384 commands") {
		t.Errorf("one command too many in a life: %v", err)
	}
	if err := start(0); err != nil {
		t.Errorf("start of an old command again: %v", err)
	}
}

// TestStartThatWasNotSent starts commands in a box that does not read: a start
// that is given up is as if it had never been asked.
func TestStartThatWasNotSent(t *testing.T) {
	s := newScripted(t, `{"version":2,"pid":1}`)
	big := sandbox.Command{Argv: []string{"x", strings.Repeat("y", 200_000)}}
	for i := 0; ; i++ {
		ctx, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
		big.ID = execID(i)
		err := s.Start(ctx, big)
		cancel()
		if err == nil && i < 100 {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("start %d: %v", i, err)
		}
		break
	}
	if _, err := s.Attach(testContext(t), big.ID, sandbox.Offsets{}, nil); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("attach to it: %v", err)
	}
	n := s.Running()
	again := make(chan error)
	go func() { again <- s.Start(testContext(t), big) }()
	for range n + 1 {
		s.want(t, guest.KindStart)
	}
	if err := <-again; err != nil || s.Running() != n+1 {
		t.Errorf("start again: %v, %d running", err, s.Running())
	}
}
