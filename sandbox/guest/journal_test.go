package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// count writes 1 MiB of numbered lines and then says so in a file.
const count = 1 << 20

func counting(mark string) string {
	return fmt.Sprintf("seq 100000000 100104857 | head -c %d; touch %s", count, mark)
}

func counted() string {
	var b strings.Builder
	for i := 100000000; b.Len() < count; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()[:count]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// settled waits until a command's output is at least so long, and has not grown for
// a while.
func settled(t *testing.T, b *box, id cofferdam.ExecID, least int64) int64 {
	t.Helper()
	last, since, end := int64(-1), time.Now(), time.Now().Add(time.Minute)
	for time.Since(since) < 400*time.Millisecond || last < least && time.Now().Before(end) {
		r, _, err := b.Result(testContext(t), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.Stdout != last {
			last, since = r.Stdout, time.Now()
		}
		time.Sleep(5 * time.Millisecond) // looks at another process
	}
	return last
}

func TestWriterWaitsAtTheCap(t *testing.T) {
	const most = 256 << 10
	b := newBox(t, guest.Options{StreamCap: most})
	if err := b.Start(testContext(t), sandbox.Command{ID: "w", Shell: counting("written")}); err != nil {
		t.Fatal(err)
	}
	if got := settled(t, b, "w", most); got != most || exists(filepath.Join(b.work, "written")) {
		t.Fatalf("%d bytes in the journal, want %d and a waiting writer", got, most)
	}
	if r, stdout, _ := b.do(t, sandbox.Command{Shell: "echo others go on"}); r.Exit != 0 || stdout == "" {
		t.Errorf("%+v", r)
	}

	// A reader that takes some and goes lets as much on.
	stop := errors.New("enough")
	var out collector
	taken := 0
	_, err := b.Attach(testContext(t), "w", sandbox.Offsets{}, func(s sandbox.Stream, off int64, p []byte) error {
		if taken++; taken > 2 {
			return stop
		}
		return out.sink(s, off, p)
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if got := settled(t, b, "w", most+int64(out[1].Len())); got != most+int64(out[1].Len()) {
		t.Errorf("%d bytes after %d were acknowledged", got, out[1].Len())
	}
	r, err := b.Attach(testContext(t), "w", sandbox.Offsets{Stdout: int64(out[1].Len())}, out.sink)
	if err != nil || r.Exit != 0 || out[1].String() != counted() {
		t.Errorf("%+v, %v, %d bytes", r, err, out[1].Len())
	}

	// What was acknowledged may be gone, and its place on the disk is free.
	_, err = b.Attach(testContext(t), "w", sandbox.Offsets{}, out.sink)
	if cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "acknowledged and dropped") {
		t.Errorf("attach from the start: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(b.journals, "1.1"), &st); err != nil || st.Blocks*512 > most+2*guest.ChunkSize || st.Mode&0o777 != 0o600 {
		t.Errorf("journal of %d bytes on disk, mode %o, %v", st.Blocks*512, st.Mode, err)
	}
}

func TestKillOfAWriterThatWaits(t *testing.T) {
	b := newBox(t, guest.Options{StreamCap: 64 << 10})
	if err := b.Start(testContext(t), sandbox.Command{ID: "w", Shell: "exec yes"}); err != nil {
		t.Fatal(err)
	}
	settled(t, b, "w", 64<<10)
	if err := b.Kill(testContext(t), "w"); err != nil {
		t.Fatal(err)
	}
	r, stdout, _ := b.finish(t, "w")
	if r.Signal != 9 || len(stdout) < 64<<10 || strings.Trim(stdout, "y\n") != "" {
		t.Errorf("%+v, %d bytes", r, len(stdout))
	}
}

func TestSlowAndFastReader(t *testing.T) {
	b := newBox(t, guest.Options{StreamCap: 128 << 10})
	if err := b.Start(testContext(t), sandbox.Command{ID: "w", Shell: counting("written")}); err != nil {
		t.Fatal(err)
	}
	var slow, fast collector
	go1 := make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := b.Attach(testContext(t), "w", sandbox.Offsets{}, func(s sandbox.Stream, off int64, p []byte) error {
			<-go1
			return slow.sink(s, off, p)
		})
		done <- err
	}()
	go func() {
		_, err := b.Attach(testContext(t), "w", sandbox.Offsets{}, fast.sink)
		done <- err
	}()
	settled(t, b, "w", 128<<10)
	close(go1)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if slow[1].String() != counted() || fast[1].String() != counted() {
		t.Errorf("slow %d, fast %d bytes", slow[1].Len(), fast[1].Len())
	}
}

func TestBoxCap(t *testing.T) {
	b := newBox(t, guest.Options{StreamCap: 512 << 10, BoxCap: 1 << 20})
	ids := []cofferdam.ExecID{"a", "b", "c", "d", "e", "f"}
	for _, id := range ids {
		if err := b.Start(testContext(t), sandbox.Command{ID: id, Shell: counting("w-" + string(id))}); err != nil {
			t.Fatal(err)
		}
	}
	var sum int64
	for end := time.Now().Add(time.Minute); sum < 1<<20 && time.Now().Before(end); {
		sum = 0
		for _, id := range ids {
			sum += settled(t, b, id, 0)
		}
	}
	if most := int64(1<<20 + len(ids)*guest.Window); sum > most {
		t.Errorf("the journals hold %d bytes, want at most %d", sum, most)
	}
	err := b.Start(testContext(t), sandbox.Command{ID: "more", Argv: []string{"true"}})
	if cofferdam.KindOf(err) != cofferdam.Exhausted || cofferdam.HintOf(err) == "" {
		t.Errorf("start with full journals: %v", err)
	}
	for _, id := range ids { // one after the other: none waits for the others' readers
		if _, stdout, _ := b.finish(t, id); stdout != counted() {
			t.Errorf("%s: %d bytes", id, len(stdout))
		}
	}
	if r, _, _ := b.do(t, sandbox.Command{ID: "more", Argv: []string{"true"}}); r.Exit != 0 {
		t.Errorf("%+v", r)
	}
}

// TestJournalDiskFull fills the journals' file system: the writer waits, and
// with a reader all goes on.
func TestJournalDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts a small file system")
	}
	b := newBox(t, guest.Options{})
	if err := syscall.Mount("small", b.journals, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("needs tmpfs: " + err.Error())
	}
	t.Cleanup(func() { syscall.Unmount(b.journals, syscall.MNT_DETACH) })
	if err := b.Start(testContext(t), sandbox.Command{ID: "w", Shell: counting("written")}); err != nil {
		t.Fatal(err)
	}
	if got := settled(t, b, "w", 0); got > 256<<10+guest.Window || exists(filepath.Join(b.work, "written")) {
		t.Errorf("%d bytes were taken by a file system of 256 KiB", got)
	}
	if _, stdout, _ := b.finish(t, "w"); stdout != counted() {
		t.Errorf("%d bytes", len(stdout))
	}
}

func TestOffsets(t *testing.T) {
	b := newBox(t, guest.Options{})
	b.do(t, sandbox.Command{ID: "a", Shell: "printf 0123456789; printf abc >&2"})
	var out, errs bytes.Buffer
	_, err := b.Attach(testContext(t), "a", sandbox.Offsets{Stdout: 7, Stderr: 2}, func(s sandbox.Stream, off int64, p []byte) error {
		if s == sandbox.Stdout {
			fmt.Fprintf(&out, "%d:%s", off, p)
		} else {
			fmt.Fprintf(&errs, "%d:%s", off, p)
		}
		return nil
	})
	if err != nil || out.String() != "7:789" || errs.String() != "2:c" {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
	for _, from := range []sandbox.Offsets{{Stdout: 11}, {Stderr: 4}, {Stdout: -1}} {
		if _, err := b.Attach(testContext(t), "a", from, nil); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%+v: %v", from, err)
		}
	}
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := b.Attach(ctx, "a", sandbox.Offsets{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}
