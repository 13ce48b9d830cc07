package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/session"
)

// TestEndOfTheProcessWhileMessagesAreDelivered cuts the process before and after
// every call to the boxes of a session that a person talks to and whose agent is
// killed once: with a message before it begins, one while it thinks, and one at
// its very end. Each is told exactly once, whatever process is there.
func TestEndOfTheProcessWhileMessagesAreDelivered(t *testing.T) {
	if testing.Short() {
		t.Skip("runs some eighty sessions: not with -short")
	}
	b, m := steered(t, `begin
		case $TURN in
		1) say thinking; : > $DIR/thinking; sleep 60;;
		2) kill -9 $$;;
		esac
		end "turn $TURN"`)
	left, before, cut := new(atomic.Int64), false, func() {}
	change := b.change
	b.change = func(o *session.Options) {
		change(o)
		o.Driver = cutting{o.Driver, left, before, func() { cut() }}
	}
	for _, before = range []bool{true, false} {
		for n := 1; ; n++ {
			*m = mail{}
			m.send("before")
			m.late = []string{"at the end"}
			p := b.pretended()
			p.Branch = cofferdam.Ref(fmt.Sprintf("refs/heads/cofferdam/steer-%v-%d", before, n))
			ctx, cancel := context.WithCancelCause(context.Background())
			cut = func() { cancel(errCut) }
			left.Store(int64(n))
			b.restart()
			stop := b.sendOnce(m, "while thinking")
			r, err := b.runner.Run(ctx, p)
			over := err == nil && left.Load() > 0
			if err != nil {
				left.Store(0)
				b.restart()
				r = b.run(p)
			}
			cancel(nil)
			stop()
			b.sameTalk(fmt.Sprintf("call %d, before %v", n, before), p, r, m)
			if over {
				if n < 20 {
					t.Errorf("it made only %d calls: the test cuts nothing", n)
				}
				break
			}
			if t.Failed() {
				return
			}
		}
	}
}

// sendOnce sends a text once the first turn is thinking.
func (b *bench) sendOnce(m *mail, text string) (stop func()) {
	path := filepath.Join(b.scripts, "thinking")
	os.Remove(path)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(path); err == nil {
				m.send(text)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// sameTalk checks that every message was told once, in order, and every turn
// begun once.
func (b *bench) sameTalk(name string, p session.Plan, r session.Result, m *mail) {
	b.t.Helper()
	b.noBoxes()
	if r.Failure != "" || !m.deaf {
		b.t.Errorf("%s: %+v, deaf %v", name, r, m.deaf)
		return
	}
	told := b.told(r)
	at := -1
	for _, text := range []string{"before", "while thinking", "at the end"} {
		if i := strings.Index(told, text); strings.Count(told, text) != 1 || i < at {
			b.t.Errorf("%s: %q in\n%s", name, text, told)
		} else {
			at = i
		}
	}
	why := b.turns(p)
	if strings.Count(told, "== ") != len(why) || why[0] != "start" {
		b.t.Errorf("%s: turns %v, told\n%s", name, why, told)
	}
	if left, err := filepath.Glob(filepath.Join(b.dir, "session", "*")); err != nil || len(left) > 0 {
		b.t.Errorf("%s: left %v %v", name, left, err)
	}
}
