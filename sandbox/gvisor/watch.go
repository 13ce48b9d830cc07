package gvisor

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/watch"

	"golang.org/x/sys/unix"
)

// guards is what a watched folder has to know of the box.
func guards(b *box) watch.Box {
	return watch.Box{
		Commands: &b.commands, Life: b.Life,
		Kill: func(ctx context.Context, id cofferdam.ExecID) error { return b.Host.Kill(ctx, id) },
		Open: func(yield func(*os.File, []string) bool) { // its kernel has all that its processes have
			f, err := os.Open(fmt.Sprintf("/proc/%d/fd", b.pid.Load()))
			if err != nil {
				return // the box has just ended
			}
			defer f.Close()
			yield(f, nil)
		},
		Full: func() { b.meter.Met(sandbox.ExhaustedDisk) },
		End: func(why string) {
			b.condemned.CompareAndSwap(nil, &why)
			_ = sandbox.Signal(int(b.pid.Load()), unix.SIGKILL) // it may just have ended
		},
		Fault: func(err error) {
			b.d.o.Log.Warn("counting what a box has written", slog.Any("box", b.name), slog.Any("err", err))
		},
	}
}

// work returns what watches the workspace; nil if nothing does.
func work(b *box) *watch.Folder { return b.folders.Of(b.path("work")) }
