package keeper

import (
	"context"
	"io"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// BenchmarkExec is a command from start to result, and BenchmarkOutput the bytes
// of one, through pid 1, journal and socket.
func BenchmarkExec(b *testing.B) {
	box := benchBox(b)
	for b.Loop() {
		c := sandbox.Command{ID: cofferdam.ExecID(cofferdam.NewID("x")), Argv: []string{"true"}}
		if r, err := sandbox.Run(context.Background(), box, c, nil, nil); err != nil || r.Exit != 0 {
			b.Fatal(r, err)
		}
	}
}

func BenchmarkOutput(b *testing.B) {
	const size = 64 << 20
	box := benchBox(b)
	b.SetBytes(size)
	for b.Loop() {
		c := sandbox.Command{ID: cofferdam.ExecID(cofferdam.NewID("x")), Argv: []string{"head", "-c", "67108864", "/dev/zero"}}
		if r, err := sandbox.Run(context.Background(), box, c, io.Discard, nil); err != nil || r.Stdout != size {
			b.Fatal(r, err)
		}
	}
}

func benchBox(b *testing.B) sandbox.Box {
	f, err := sandboxtest.NewFake(b.TempDir())
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { f.Close() })
	path, _ := serveOn(b, map[sandbox.Tier]sandbox.Driver{sandbox.None: f})
	c, err := Dial(context.Background(), path)
	if err != nil {
		b.Fatal(err)
	}
	box, err := c.Create(context.Background(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host"})
	if err != nil {
		b.Fatal(err)
	}
	return box
}
