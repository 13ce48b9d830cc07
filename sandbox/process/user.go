package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// How a keeper without control groups gets them, or goes on.
const (
	delegate   = "run the keeper as root, or go on without them: cofferdam-keeper --limits watched"
	watchedFix = "run the keeper as root, where the host has control groups"
)

// inner says whether boxes have a user namespace of their own: there the limit of
// processes is one box's, and pid 1 has its rights over the ids of a box alone.
func (d *Driver) inner() bool { return d.o.User || d.watched }

// Offers implements sandbox.Driver.
func (d *Driver) Offers(context.Context) ([]sandbox.Offer, error) {
	return []sandbox.Offer{OfferOf(d.watched)}, nil
}

// OfferOf is what boxes can do: less where they are watched, since they have no
// control groups.
func OfferOf(watched bool) sandbox.Offer {
	o := sandbox.OfferOf(sandbox.Process)
	o.Can = slices.DeleteFunc(slices.Clone(o.Can), func(c sandbox.Capability) bool {
		return watched && (c == sandbox.CanPause || c == sandbox.CanCheckpoint)
	})
	return o
}

// watchedLacks refuses what only a keeper with control groups can do.
func watchedLacks(c sandbox.Capability, why string) error {
	return invalid("process.Box", string(c), "this keeper has no control groups: "+why, "ask for a box of tier gvisor, or give the keeper control groups: cofferdam doctor says how")
}

// ids is a range of user or group ids.
type ids struct{ first, count int }

// userIDs and groupIDs are those of a box's user namespace: pid 1's, its user's,
// and the groups that mark commands. They are the same outside, where the keeper is.
func userIDs() []ids { return []ids{{0, 1}, {sandbox.UserID, 1}} }

func groupIDs() []ids { return append(userIDs(), ids{guest.FewBase + 1, guest.MaxCommands}) }

// same maps ids to themselves.
func same(list []ids) (maps []syscall.SysProcIDMap) {
	for _, r := range list {
		maps = append(maps, syscall.SysProcIDMap{ContainerID: r.first, HostID: r.first, Size: r.count})
	}
	return maps
}

// ids checks that the keeper's namespace has every id of a box.
func (c *checker) ids() (string, error) {
	for file, need := range map[string][]ids{"uid_map": userIDs(), "gid_map": groupIDs()} {
		data, err := os.ReadFile(filepath.Join(c.proc, file))
		if err != nil {
			return "", err
		}
		for _, r := range need {
			if !mapped(string(data), r) {
				return "", fmt.Errorf("the user namespace of the keeper lacks ids from %d to %d: its %s is %.200q", r.first, r.first+r.count-1, file, data)
			}
		}
	}
	if data, err := os.ReadFile(filepath.Join(c.proc, "setgroups")); err == nil && strings.TrimSpace(string(data)) != "allow" {
		return "", errors.New("the user namespace of the keeper may give its processes no groups")
	}
	return "of boxes and their commands", nil
}

// hardLimit is the most that this process may give itself and others of a limit.
func hardLimit(what int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(what, &l) != nil {
		return 0 // there is no such limit
	}
	return l.Max
}

// allows refuses limits above those of the keeper's own user, which the kernel
// would let nobody but root of the host raise.
func (c *checker) allows(l cofferdam.Limits, pids int64) error {
	for _, x := range []struct {
		what        int
		name, short string
		want        int64
	}{
		{unix.RLIMIT_NOFILE, "open files", "nofile", max(l.OpenFiles, minInitFiles)},
		{unix.RLIMIT_NPROC, "processes", "nproc", pids},
	} {
		if most := c.most(x.what); uint64(x.want) > most && c.o.User {
			return &cofferdam.Error{
				Op: opCreate, Kind: cofferdam.Unavailable, Subject: "limit of " + x.name, Reason: fmt.Sprintf("the box asks for %d, and the user of the keeper may have %d", x.want, most),
				Hint: fmt.Sprintf("give the box fewer, or have the user's limit raised and log in anew: a line \"USER hard %s %d\" in /etc/security/limits.conf", x.short, x.want),
			}
		}
	}
	return nil
}

// mapped says whether a map of the kernel has every id of a range, in one piece.
func mapped(text string, r ids) bool {
	for line := range strings.Lines(text) {
		var inside, outside, count int64
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && int64(r.first) >= inside && int64(r.first+r.count) <= inside+count {
			return true
		}
	}
	return false
}

// pidFile, in a box's folder, says which process its pid 1 is: its number, and
// when it began. Without control groups a later keeper knows by it
// what to end.
const pidFile = "pid1"

// remember writes down which process pid 1 is, before it does anything.
func (b *box) remember() error {
	pid := b.init.cmd.Process.Pid
	began, err := beginOf(pid)
	if err != nil {
		return err
	}
	return os.WriteFile(b.path(pidFile), fmt.Appendf(nil, "%d %s", pid, began), 0o600)
}

// beginOf says when a process began: in ticks since the host did, and which start
// of the host that was. That of a process that has ended is an error.
func beginOf(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return f[19] + " " + strings.TrimSpace(string(boot)), err
}

// endPatience is how long the kernel may take to end what was killed.
const endPatience = 10 * time.Second

// endStrays ends boxes of an earlier keeper of this folder: without control groups
// each is known by its pid 1, with which the kernel ends the rest.
func (d *Driver) endStrays() error {
	files, err := filepath.Glob(filepath.Join(d.o.Root, "boxes", "*", pidFile))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, d.endStray(file))
	}
	return errors.Join(errs...)
}

func (d *Driver) endStray(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number, began, _ := strings.Cut(string(data), " ")
	pid, err := strconv.Atoi(number)
	if err != nil || began == "" {
		return nil // it was killed while it wrote that: its pid 1 did nothing yet
	}
	for deadline := time.Now().Add(endPatience); ; time.Sleep(2 * time.Millisecond) {
		now, err := beginOf(pid)
		if err != nil || now != began {
			return nil // it has ended
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end", pid)
		}
		if err := sandbox.Signal(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
}
