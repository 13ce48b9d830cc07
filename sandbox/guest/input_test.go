package guest_test

import (
	"bytes"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// TestLastLineAndEndComeAsOne: a command may end on its last line. If the end of its
// input were said after that line, whoever wrote both could be told that the command
// has ended, and would not know that it had the line.
func TestLastLineAndEndComeAsOne(t *testing.T) {
	s := newScripted(t, `{"version":2,"pid":1}`)
	ctx := testContext(t)
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		c := sandbox.Command{ID: execID(i), Shell: "read x", Stdin: true}
		if err := s.Start(ctx, c); err != nil {
			t.Fatal(err)
		}
		n := s.want(t, guest.KindStart).Command
		wrote := make(chan error, 1)
		go func() { wrote <- s.Write(ctx, c.ID, []byte("3\n"), true) }()
		if kinds := s.piece(t, guest.KindStdin); !bytes.HasPrefix(kinds, []byte{byte(guest.KindStdin), byte(guest.KindStdinEnd)}) {
			t.Fatalf("command %d: the line came in a piece of frames %v", i, kinds)
		}
		s.say(guest.KindOutputEnd, n, "\x01")
		s.say(guest.KindOutputEnd, n, "\x02")
		s.say(guest.KindExit, n, `{"exit":3}`)
		if err := <-wrote; err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
		if r, err := s.Attach(ctx, c.ID, sandbox.Offsets{}, nil); err != nil || r.Exit != 3 {
			t.Fatalf("command %d: %+v, %v", i, r, err)
		}
		if err := s.Write(ctx, c.ID, nil, true); cofferdam.KindOf(err) != cofferdam.Conflict {
			t.Fatalf("the end of input after the command's: %v", err)
		}
	}
}

// piece reads what comes in one piece, up to one that has a frame of kind k, and says
// of which kinds the frames in that are, from the first of kind k on.
func (s *scripted) piece(t *testing.T, k guest.Kind) (kinds []byte) {
	t.Helper()
	for b := make([]byte, 1<<16); len(kinds) == 0; {
		n, err := s.pipe.Read(b)
		if err != nil {
			t.Fatalf("waiting for kind %d: %v", k, err)
		}
		for r := guest.NewReader(bytes.NewReader(b[:n]), guest.MaxStart); ; {
			f, err := r.Next()
			if err != nil {
				break
			}
			if f.Kind == k || len(kinds) > 0 {
				kinds = append(kinds, byte(f.Kind))
			}
		}
	}
	return kinds
}
