package keeper

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// wired is a driver with one box that lends the reading end of a pipe.
type wired struct {
	sandbox.Driver
	sandbox.Box
	lent *os.File
}

func (w *wired) Open(_ context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	if id != "b-1" {
		return nil, &cofferdam.Error{Op: "test.Open", Kind: cofferdam.NotFound}
	}
	return w, nil
}

func (w *wired) List(context.Context) ([]sandbox.Status, error) { return nil, nil }

func (w *wired) Status(context.Context) (sandbox.Status, error) {
	return sandbox.Status{ID: "b-1"}, nil
}

func (w *wired) Wire(context.Context) (*os.File, error) {
	if w.lent == nil {
		return nil, &cofferdam.Error{Op: "test.Wire", Kind: cofferdam.Unavailable, Subject: "wire", Reason: "lent out", Hint: "wait"}
	}
	f := w.lent
	w.lent = nil
	return f, nil
}

func TestWire(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	path, _ := serveOn(t, map[sandbox.Tier]sandbox.Driver{sandbox.None: &wired{lent: r}})
	b, err := dial(t, path).Open(testContext(t), "b-1")
	if err != nil {
		t.Fatal(err)
	}
	lent, err := b.Wire(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(fdOf(t, lent), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor would be inherited: %x, %v", flags, err)
	}
	if flags, err := unix.FcntlInt(fdOf(t, lent), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("lending made the descriptor block: %x, %v", flags, err)
	}
	if _, err := w.WriteString("frame"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got, err := io.ReadAll(lent); err != nil || string(got) != "frame" {
		t.Errorf("got %q, %v", got, err)
	}
	lent.Close()
	_, err = b.Wire(testContext(t))
	if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) != "wait" {
		t.Errorf("second: %v", err)
	}
}

func fdOf(t *testing.T, f *os.File) (fd uintptr) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = n })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// waiting is a driver whose boxes are never ready.
type waiting struct {
	sandbox.Driver
	began, undone chan struct{}
}

func (w *waiting) List(context.Context) ([]sandbox.Status, error) { return nil, nil }

func (w *waiting) Create(ctx context.Context, _ sandbox.Spec) (sandbox.Box, error) {
	close(w.began)
	<-ctx.Done()
	close(w.undone)
	return nil, ctx.Err()
}

func TestCreationOfAClientThatVanished(t *testing.T) {
	w := &waiting{began: make(chan struct{}), undone: make(chan struct{})}
	path, _ := serveOn(t, map[sandbox.Tier]sandbox.Driver{sandbox.None: w})
	ctx, cancel := context.WithCancel(testContext(t))
	c := dial(t, path)
	done := make(chan error)
	go func() {
		_, err := c.Create(ctx, sandbox.Spec{ID: "b-1", Tier: sandbox.None})
		done <- err
	}()
	<-w.began
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("create: %v", err)
	}
	select {
	case <-w.undone:
	case <-testContext(t).Done():
		t.Error("the driver goes on making the box")
	}
}

func FuzzReadFrame(f *testing.F) {
	var b bytes.Buffer
	if err := writeJSON(&b, request{Op: opList}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("\x00\x00\x00\x0b\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00x"))
	f.Fuzz(func(t *testing.T, p []byte) {
		r := bytes.NewReader(p)
		for {
			fr, err := readFrame(r)
			if err != nil {
				return
			}
			var v request
			if fr.json(&v) == nil && v.Command != nil {
				v.Command.unpack()
			}
			if _, _, data, err := fr.data(); err == nil && len(data) > chunk {
				t.Errorf("%d bytes of data", len(data))
			}
		}
	})
}
