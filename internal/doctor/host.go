package doctor

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/keeper"
)

// Host is what the checks ask; a test puts its own answers in.
type Host struct {
	UID    func() int
	Run    func(ctx context.Context, name string, args ...string) ([]byte, error)
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Find   func(program string) (string, error)
	Free   func(path string) (bytes, files uint64, err error)
	Now    func() time.Time
	TUN    func() error // opens /dev/net/tun and closes it
	Keeper func(ctx context.Context, socket string) (keeper.Info, error)
}

// keeperTimeout is for all of the keeper's probes: one starts a real box.
const keeperTimeout = 60 * time.Second

func (h Host) filled() Host {
	if h.UID == nil {
		h.UID = os.Geteuid
	}
	if h.Run == nil {
		h.Run = func(ctx context.Context, name string, args ...string) ([]byte, error) {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.WaitDelay = time.Second
			return cmd.Output()
		}
	}
	if h.Lookup == nil {
		h.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if h.Find == nil {
		h.Find = exec.LookPath
	}
	if h.Free == nil {
		h.Free = func(path string) (uint64, uint64, error) {
			var s unix.Statfs_t
			if err := unix.Statfs(path, &s); err != nil {
				return 0, 0, err
			}
			return s.Bavail * uint64(s.Bsize), s.Ffree, nil // a block size is never negative
		}
	}
	if h.TUN == nil {
		h.TUN = func() error {
			f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	if h.Keeper == nil {
		h.Keeper = keeper.Look
	}
	if h.Now == nil {
		h.Now = time.Now
	}
	return h
}
