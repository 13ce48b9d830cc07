package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// hashing is a sink that checks offsets and keeps a hash.
type hashing struct {
	hash.Hash
	at    int64
	abort int64 // detach after this many more bytes; 0: never
}

var errDetach = errors.New("detach")

func (h *hashing) sink(_ sandbox.Stream, off int64, p []byte) error {
	if off != h.at {
		return fmt.Errorf("chunk at %d after %d bytes", off, h.at)
	}
	if h.abort > 0 && h.at+int64(len(p)) > h.abort {
		return errDetach
	}
	h.at += int64(len(p))
	h.Write(p)
	return nil
}

// numbers is what seq 1 n prints.
func numbers(n int) (size int64, sum []byte) {
	h := sha256.New()
	var buf []byte
	for i := 1; i <= n; i++ {
		buf = append(strconv.AppendInt(buf, int64(i), 10), 0x0a)
		if len(buf) > 1<<16 || i == n {
			size += int64(len(buf))
			h.Write(buf)
			buf = buf[:0]
		}
	}
	return size, h.Sum(nil)
}

func testDetach(t *testing.T, s *subject) {
	const count = 8_500_000 // 66 MiB
	ctx := testContext(t)
	b := s.box(t, nil)
	size, want := numbers(count)
	b.start(t, sandbox.Command{ID: "seq", Argv: []string{"seq", "1", fmt.Sprint(count)}})
	h := &hashing{Hash: sha256.New()}
	for h.at < size {
		h.abort = h.at + 5<<20
		r, err := b.Attach(ctx, "seq", sandbox.Offsets{Stdout: h.at}, h.sink)
		if err == nil {
			if r.Exit != 0 || r.Stdout != size {
				t.Errorf("%+v, want %d bytes", r, size)
			}
			break
		}
		if !errors.Is(err, errDetach) {
			t.Fatalf("attach at %d: %v", h.at, err)
		}
	}
	if h.at != size || !bytes.Equal(h.Sum(nil), want) {
		t.Errorf("%d bytes, want %d, or other ones", h.at, size)
	}
	if _, err := b.Attach(ctx, "seq", sandbox.Offsets{Stdout: size + 1}, h.sink); err == nil {
		t.Error("attached beyond the end")
	}
	again := &hashing{Hash: sha256.New(), at: size - 1<<20}
	if _, err := b.Attach(ctx, "seq", sandbox.Offsets{Stdout: again.at}, again.sink); err != nil || again.at != size {
		t.Errorf("the last MiB once more: %v, at %d of %d", err, again.at, size)
	}
}

func testCap(t *testing.T, s *subject) {
	const count = 18_000_000 // 149 MiB: more than twice the cap
	b := s.box(t, nil)
	size, want := numbers(count)
	b.start(t, sandbox.Command{ID: "big", Argv: []string{"seq", "1", fmt.Sprint(count)}})
	b.shell(t, "true") // others go on while it waits for a reader
	h := &hashing{Hash: sha256.New()}
	r, err := b.Attach(testContext(t), "big", sandbox.Offsets{}, h.sink)
	if err != nil || r.Exit != 0 || r.Stdout != size || !bytes.Equal(h.Sum(nil), want) {
		t.Errorf("%+v, %v; %d bytes, want %d", r, err, h.at, size)
	}
}

func testFifty(t *testing.T, s *subject) {
	b := s.box(t, nil)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var out, errs bytes.Buffer
			c := sandbox.Command{ID: cofferdam.ExecID(fmt.Sprintf("c-%d", i)), Shell: fmt.Sprintf("seq %d 20000; echo e%d >&2; exit %d", i, i, i)}
			r, err := sandbox.Run(ctx, b, c, &out, &errs)
			last := strings.TrimSpace(out.String()[max(0, out.Len()-6):])
			if err != nil || r.Exit != i || !strings.HasPrefix(out.String(), fmt.Sprintf("%d\n", i)) || last != "20000" || errs.String() != fmt.Sprintf("e%d\n", i) {
				t.Errorf("command %d: %+v, %v, %d bytes, %q", i, r, err, out.Len(), errs.String())
			}
		})
	}
	wg.Wait()
}

func testDestroy(t *testing.T, s *subject) {
	b := s.box(t, nil)
	b.start(t, sandbox.Command{ID: "long", Shell: "echo begun; sleep 1000"})
	r, err := b.Attach(testContext(t), "long", sandbox.Offsets{}, func(sandbox.Stream, int64, []byte) error {
		go func() { _ = b.Destroy(context.Background()) }() // the attachment tells
		return nil
	})
	if err != nil || !r.Lost || r.Reason == "" || r.Stdout != int64(len("begun\n")) {
		t.Errorf("%+v, %v", r, err)
	}
}
