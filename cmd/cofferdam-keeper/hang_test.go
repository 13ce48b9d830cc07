package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/keeper"
)

// patched are the programs of another release: the same, but for the linker's id of
// cofferdam-init.
func patched(t *testing.T, bin string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"cofferdam-keeper", "cofferdam-runsc"} {
		if err := os.Link(filepath.Join(bin, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(bin, "cofferdam-init"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	note := f.Section(".note.go.buildid")
	if note == nil {
		t.Fatal("cofferdam-init has no id of a linker")
	}
	at := note.Offset + 16 // behind three lengths and a name
	data[at] = map[bool]byte{true: 'b', false: 'a'}[data[at] == 'a']
	syscall.ForkLock.RLock() // a child that has it open for writing would keep others from starting it
	err = os.WriteFile(filepath.Join(dir, "cofferdam-init"), data, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	one, err := keeper.BuildOf(bin, "")
	other, err2 := keeper.BuildOf(dir, "")
	if err != nil || err2 != nil || one == other {
		t.Fatalf("builds %s and %s: %v %v", one, other, err, err2)
	}
	return dir
}

// stop stops a process, which is done a while after the signal was sent: until then it
// may begin an answer that it does not end.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "it is stopped", func() bool {
		threads, err := filepath.Glob("/proc/" + pidText(pid) + "/task/*/stat")
		return err == nil && !slices.ContainsFunc(threads, func(path string) bool {
			text, err := os.ReadFile(path)
			return err == nil && !strings.HasPrefix(string(text[bytes.LastIndexByte(text, ')'):]), ") T ")
		})
	})
}

// stopNew starts a keeper in a slot and stops its process (SIGSTOP) in the middle of
// its beginning: it has the state folder, and its log is a pipe that nobody reads, so
// that it cannot come to serving before. It returns the process, and fails as the
// start of a keeper that does not come to serving.
func (p place) stopNew(t *testing.T, s keeper.Slot, args []string) (pid int, err error) {
	t.Helper()
	q := place{bin: p.bin, state: s.State, socket: s.Socket}
	log := filepath.Join(s.State, "keeper.log")
	if err := errors.Join(os.MkdirAll(s.State, 0o700), syscall.Mkfifo(log, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := q.command(append([]string{"--detach", "--kept", p.state}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "it has its state folder", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.State, keeper.LockFile)) // there is none at first
		n, _ := fmt.Sscanf(string(text), "process %d\nbegins", &pid)
		return n == 1 && strings.Contains(string(text), "\nbegins "+s.Socket+"\n")
	})
	stop(t, pid)
	reader, err := os.OpenFile(log, os.O_RDWR, 0) // to write too, so that this does not wait for it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	t.Cleanup(func() {
		if exe, err := os.Readlink("/proc/" + pidText(pid) + "/exe"); err == nil && strings.HasPrefix(exe, p.bin) {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may be gone
		}
		q.end(t, pid, syscall.SIGTERM)
	})
	_ = cmd.Process.Kill() // who waited for it has no more patience
	_ = cmd.Wait()
	return pid, errors.New("it does not come to serving")
}

// TestNewKeeperIsStoppedInTheMiddle: in the middle of an upgrade the new keeper is
// stopped. That start of the server fails, and the old keeper goes on as it was; the
// next start makes a third one, with every box of before; and once the stopped one
// goes on, or is killed, nothing is lost either.
func TestNewKeeperIsStoppedInTheMiddle(t *testing.T) {
	for name, how := range map[string]syscall.Signal{"and goes on": syscall.SIGCONT, "and is killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			next := p
			next.bin = patched(t, p.bin)
			build, err := keeper.BuildOf(next.bin, "")
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			spec := func() sandbox.Spec {
				return sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: "host", Limits: cofferdam.Limits{Memory: 256 << 20, Disk: 64 << 20, PIDs: 64}}
			}
			old, err := p.gather(t, p.bin).Create(ctx, spec())
			if err != nil {
				t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
			}
			if err := old.Start(ctx, sandbox.Command{ID: "work", Shell: "read -r line; echo $line; exit 7", Stdin: true}); err != nil {
				t.Fatal(err)
			}
			stopped := 0
			_, err = keeper.Gather(ctx, keeper.Gathering{
				Slots: keeper.Slots(p.socket, p.state), Build: build, Log: slog.New(slog.DiscardHandler),
				Start: func(_ context.Context, s keeper.Slot, args []string) (err error) {
					stopped, err = next.stopNew(t, s, args)
					return err
				},
			})
			if err == nil || stopped == 0 || p.builds() != "k" {
				t.Fatalf("after a start that failed: %v, keepers %q", err, p.builds())
			}
			next.patience = 200 * time.Millisecond
			set := next.gather(t, next.bin)
			next.patience = 0
			if got := p.builds(); got != "k- k-3" {
				t.Fatalf("beside the stopped one: %q", got)
			}
			fresh, err := set.Create(ctx, spec())
			if err != nil {
				t.Fatalf("%v\nhint: %s", err, cofferdam.HintOf(err))
			}
			if err := syscall.Kill(stopped, how); err != nil {
				t.Fatal(err)
			}
			if how == syscall.SIGKILL {
				gone(t, next.bin, stopped)
			} else {
				until(t, "it serves at last", func() bool { return strings.Contains(p.builds(), "k-2") })
			}
			set = next.gather(t, next.bin)
			if list, err := set.List(ctx); err != nil || len(list) != 2 {
				t.Errorf("%d boxes, %v, keepers %q", len(list), err, p.builds())
			}
			b, err := set.Open(ctx, old.ID())
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Write(ctx, "work", []byte("still there\n"), true); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			r, err := b.Attach(ctx, "work", sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error { out.Write(p); return nil })
			if err != nil || r.Exit != 7 || out.String() != "still there\n" {
				t.Errorf("%+v, %v, %q", r, err, out.String())
			}
			for _, id := range []cofferdam.BoxID{old.ID(), fresh.ID()} {
				b, err := set.Open(ctx, id)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Destroy(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
