package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam"
)

// Bounds of what a Spec may ask for, for every tier. The upper ones keep one box
// from taking the host.
const (
	minDisk = 16 << 20 // mkfs.ext4 wants a few thousand blocks
	maxDisk = 1 << 44  // 16 TiB, the limit of ext4 with 4 KiB blocks
	minTemp = 1 << 20
	minCPU  = 0.05 // the kernel takes quotas from 1 ms per 100 ms
	minPIDs = 8
	maxPIDs = 32768 // the kernel's default pid_max
	minOpen = 64
	maxOpen = 1 << 20 // the kernel's default nr_open

	// MaxFiles and MaxFileBytes bound Spec.Files: a configuration and a bundle of
	// certificates fit, a data set does not.
	MaxFiles     = 64
	MaxFileBytes = 4 << 20

	// maxShared is what browsers and data bases want of /dev/shm.
	maxShared = 512 << 20
)

// DefaultHostname is that of a box whose Spec gives none.
const DefaultHostname = "box"

// Rules are what the drivers differ in when they look at a Spec.
type Rules struct {
	Driver    string // as it stands in errors
	Tiers     []Tier // it has; a Spec without a tier is of the only one
	MinMemory int64  // bytes: below it a box does not start
	MaxCPU    float64
	State     string   // the driver's own folder: no box may see it
	Closed    []string // more folders in which no file of a Spec may lie
	EnvFolder bool     // Spec.Env is a folder, see Offer
}

// Complete refuses what no box can have, and fills in what s leaves open.
func (s *Spec) Complete(r Rules) error {
	op := r.Driver + ".Create"
	if s.Tier == "" && len(r.Tiers) == 1 {
		s.Tier = r.Tiers[0]
	}
	if !slices.Contains(r.Tiers, s.Tier) {
		return &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: fmt.Sprintf("tier %.32q", string(s.Tier)),
			Reason: fmt.Sprintf("this driver only makes boxes of tier %s", listed(r.Tiers)), Hint: "ask for tier " + listed(r.Tiers),
		}
	}
	if err := completeLimits(&s.Limits, op, r); err != nil {
		return err
	}
	can := OfferOf(s.Tier).Can
	for _, c := range []struct {
		asked bool
		of    Capability
	}{
		{s.Image == HostView, CanHostView}, {s.Env != "" || s.SetupPhase, CanSetup}, {s.Snapshot != "", CanSnapshot}, {s.Workspace != "", CanKeep},
	} {
		if c.asked && !slices.Contains(can, c.of) {
			return Lacking(s.Tier, c.of)
		}
	}
	if s.Hostname = cmp.Or(s.Hostname, DefaultHostname); !ValidHostname(s.Hostname) {
		return Refuse(op, fmt.Sprintf("hostname %.64q", s.Hostname), "not a label of lower case letters, digits and hyphens", "")
	}
	if s.Snapshot != "" && s.Workspace != "" {
		return Refuse(op, "workspace "+string(s.Workspace), "a box that goes on from a snapshot has a copy of its workspace", "leave one of the two out")
	}
	if s.Snapshot != "" {
		if err := CheckSnapshotID(op, s.Snapshot); err != nil {
			return err
		}
	} else if s.Digest != "" {
		return Refuse(op, "digest of a snapshot", "without a snapshot", "leave it out")
	}
	if err := cmp.Or(checkImage(op, s.Image, r.State, slices.Contains(can, CanHostView)), checkEnv(op, *s, r.EnvFolder)); err != nil {
		return err
	}
	return CheckFiles(op, s.Files, true, append([]string{EnvDir, "/usr", "/run"}, r.Closed...)...)
}

func listed(tiers []Tier) string {
	var names []string
	for _, t := range tiers {
		names = append(names, string(t))
	}
	return strings.Join(names, " or ")
}

// completeLimits fills l with the defaults and checks it.
func completeLimits(l *cofferdam.Limits, op string, r Rules) error {
	d := DefaultLimits
	l.Memory, l.Disk = cmp.Or(l.Memory, d.Memory), cmp.Or(l.Disk, d.Disk)
	l.Temp, l.CPU = cmp.Or(l.Temp, min(d.Temp, l.Memory/4)), cmp.Or(l.CPU, d.CPU)
	l.PIDs, l.OpenFiles = cmp.Or(l.PIDs, d.PIDs), cmp.Or(l.OpenFiles, d.OpenFiles)
	for _, c := range []struct {
		name     string
		ok       bool
		min, max any
	}{
		{"memory", l.Memory >= r.MinMemory, bytes(r.MinMemory), "this host's memory"},
		{"disk", l.Disk >= minDisk && l.Disk <= maxDisk, bytes(minDisk), bytes(maxDisk)},
		{"temp", l.Temp >= minTemp && l.Temp <= l.Memory, bytes(minTemp), "a quarter of memory"},
		{"cpu", l.CPU >= minCPU && l.CPU <= r.MaxCPU, minCPU, r.MaxCPU},
		{"pids", l.PIDs >= minPIDs && l.PIDs <= maxPIDs, minPIDs, maxPIDs},
		{"open files", l.OpenFiles >= minOpen && l.OpenFiles <= maxOpen, minOpen, maxOpen},
	} {
		if !c.ok {
			return Refuse(op, "limit of "+c.name, "out of range", fmt.Sprintf("give a value from %v to %v", c.min, c.max))
		}
	}
	// What lies in memory counts as memory: full, it must leave room to run.
	if 2*l.Temp+SharedMemory(*l) > l.Memory/4*3 {
		return Refuse(op, "limit of temp", "too much of the memory",
			"/tmp and the home folder are in memory: give at most a quarter of the memory limit, or more memory")
	}
	return nil
}

// bytes writes a size in its largest whole unit, as people do.
func bytes(n int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n != 0 && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// SharedMemory is the size of /dev/shm, in bytes.
func SharedMemory(l cofferdam.Limits) int64 { return min(maxShared, l.Memory/8) }

// maxLabel is the longest a label of a host name may be.
const maxLabel = 63

// ValidHostname says whether a box may have the name: a label of lower case
// letters, digits and hyphens between them. No pattern is compiled for it, or for
// the ids below: a command without a server would wait for that.
func ValidHostname(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-' && i > 0 && i < len(name)-1:
		default:
			return false
		}
	}
	return name != "" && len(name) <= maxLabel
}

// isID says whether id is the prefix and 32 hexadecimal digits, lower case.
func isID(id, prefix string) bool {
	digits, ok := strings.CutPrefix(id, prefix)
	return ok && len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}

// CheckSnapshotID refuses what is no SnapshotID: it becomes a name on the host.
func CheckSnapshotID(op string, id SnapshotID) error {
	if isID(string(id), "s-") {
		return nil
	}
	return Refuse(op, fmt.Sprintf("snapshot %.64q", string(id)), `not "s-" and 32 hexadecimal digits`, "")
}

// Refuse is the error for something that cannot be had as it was asked for.
func Refuse(op, subject, reason, hint string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// Wrap makes err one that a person can read; one that is stays as it is.
func Wrap(op, subject, hint string, err error) error {
	var known *cofferdam.Error
	if errors.As(err, &known) {
		return err
	}
	return &cofferdam.Error{Op: op, Kind: cofferdam.Unavailable, Subject: subject, Reason: err.Error(), Hint: hint, Err: err}
}

// checkEnv refuses an environment that cannot be mounted.
func checkEnv(op string, s Spec, folder bool) error {
	subject := fmt.Sprintf("environment %.200q", s.Env)
	switch {
	case s.Env == "" && s.SetupPhase:
		return Refuse(op, "setup phase", "without an environment to write", "give Env")
	case s.Env == "":
		return nil
	case !filepath.IsAbs(s.Env) || filepath.Clean(s.Env) != s.Env:
		return Refuse(op, subject, "not a clean absolute path", "")
	}
	info, err := os.Lstat(s.Env)
	switch {
	case err == nil && folder && !info.IsDir():
		return Refuse(op, subject, "not a folder", "")
	case err == nil && !folder && !info.Mode().IsRegular():
		return Refuse(op, subject, "not a file", "")
	case errors.Is(err, fs.ErrNotExist) && s.SetupPhase:
		return nil
	case err != nil:
		return Refuse(op, subject, "cannot be opened", "run the setup phase first")
	}
	return nil
}

// CheckFiles refuses files that would hide what a box is made of: in the
// workspace, the kernel's folders and those that are closed.
func CheckFiles(op string, files []File, links bool, closed ...string) error {
	if len(files) > MaxFiles {
		return Refuse(op, "files", fmt.Sprintf("%d of them, more than %d", len(files), MaxFiles), "")
	}
	total, seen := 0, map[string]bool{}
	for _, f := range files {
		subject := fmt.Sprintf("file %.128q", f.Path)
		if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path || f.Path == "/" || seen[f.Path] {
			return Refuse(op, subject, "not a clean absolute path of its own", "")
		}
		seen[f.Path] = true
		if f.Link != "" && (!links || !filepath.IsAbs(f.Link) || filepath.Clean(f.Link) != f.Link || len(f.Data) > 0) {
			return Refuse(op, subject, "its link is not a clean absolute path alone", "")
		}
		for _, dir := range append([]string{WorkDir, "/proc", "/sys", "/dev"}, closed...) {
			if Within(dir, f.Path) {
				return Refuse(op, subject, "may not lie under "+dir, "put it under /etc, /opt or "+HomeDir)
			}
		}
		if total += len(f.Data); total > MaxFileBytes {
			return Refuse(op, "files", fmt.Sprintf("more than %d bytes in all", MaxFileBytes), "")
		}
	}
	return nil
}

// Perm is the mode that f has in a box.
func (f File) Perm() os.FileMode { return cmp.Or(f.Mode.Perm(), 0o444) }

// Within says whether path is folder or lies in it. Both are absolute and clean.
func Within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
