package microvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// Bounds of what a Spec may ask for. Below the lower ones a machine does not
// start; the upper ones keep one box from taking the host.
const (
	minMemory = 192 << 20 // the kernel with its initramfs, and pid 1
	minDisk   = 16 << 20  // mkfs.ext4 wants a few thousand blocks
	maxDisk   = 1 << 44   // 16 TiB, the limit of ext4 with 4 KiB blocks
	minTemp   = 1 << 20
	minCPU    = 0.05
	maxCPU    = 64
	minPIDs   = 8
	maxPIDs   = 32768 // the kernel's default pid_max
	minOpen   = 64
	maxOpen   = 1 << 20 // the kernel's default nr_open
	// maxShared is what browsers and databases want of /dev/shm.
	maxShared = 512 << 20

	// Bounds of Spec.Files, as for boxes of the other tiers.
	maxFiles     = 64
	maxFileBytes = 4 << 20
)

// limits completes l with the defaults and checks it.
func limits(l cofferdam.Limits) (cofferdam.Limits, error) {
	d := sandbox.DefaultLimits
	fill(&l.Memory, d.Memory)
	fill(&l.Disk, d.Disk)
	fill(&l.Temp, min(d.Temp, l.Memory/4))
	fill(&l.PIDs, d.PIDs)
	fill(&l.OpenFiles, d.OpenFiles)
	if l.CPU == 0 {
		l.CPU = d.CPU
	}
	for _, c := range []struct {
		name     string
		ok       bool
		min, max any
	}{
		{"memory", l.Memory >= minMemory, minMemory, "this host's memory"},
		{"disk", l.Disk >= minDisk && l.Disk <= maxDisk, minDisk, int64(maxDisk)},
		{"temp", l.Temp >= minTemp, minTemp, "a quarter of memory"},
		{"cpu", l.CPU >= minCPU && l.CPU <= maxCPU, minCPU, maxCPU},
		{"pids", l.PIDs >= minPIDs && l.PIDs <= maxPIDs, minPIDs, maxPIDs},
		{"open files", l.OpenFiles >= minOpen && l.OpenFiles <= maxOpen, minOpen, maxOpen},
	} {
		if !c.ok {
			return l, invalid("limit of "+c.name, "out of range", fmt.Sprintf("give a value from %v to %v", c.min, c.max))
		}
	}
	// What lies in memory counts as memory: full, it must leave room to run.
	if 2*l.Temp+shared(l) > l.Memory/4*3 {
		return l, invalid("limit of temp", "too much of the memory",
			"/tmp and the home folder are in memory: give at most a quarter of the memory limit, or more memory")
	}
	l.Memory &^= 1<<20 - 1 // machines have whole MiB
	return l, nil
}

// shared is the size of /dev/shm.
func shared(l cofferdam.Limits) int64 { return min(maxShared, l.Memory/8) }

func fill(v *int64, def int64) {
	if *v == 0 {
		*v = def
	}
}

var hostnames = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// defaultHostname is that of a box whose Spec gives none.
const defaultHostname = "box"

// checkSpec refuses what cannot be had and fills in what is left open.
func (d *Driver) checkSpec(s *sandbox.Spec) (err error) {
	if s.Tier != sandbox.MicroVM && s.Tier != sandbox.Emulated {
		return missing(fmt.Sprintf("tier %.32q", string(s.Tier)), "this driver only makes virtual machines",
			fmt.Sprintf("ask for tier %s or %s", sandbox.MicroVM, sandbox.Emulated), nil)
	}
	if s.Limits, err = limits(s.Limits); err != nil {
		return err
	}
	if s.Image == sandbox.HostView {
		return sandbox.Lacking(s.Tier, sandbox.CanHostView)
	}
	if err := checkImage(s.Image, d.o.Root); err != nil {
		return err
	}
	if s.Hostname == "" {
		s.Hostname = defaultHostname
	}
	if !hostnames.MatchString(s.Hostname) {
		return invalid(fmt.Sprintf("hostname %.64q", s.Hostname), "not a label of lower case letters, digits and hyphens", "")
	}
	return errors.Join(checkEnv(*s), checkFiles(s.Files))
}

func checkEnv(s sandbox.Spec) error {
	switch {
	case s.Workspace != "":
		return sandbox.Lacking(s.Tier, sandbox.CanKeep)
	case s.Env == "" && s.SetupPhase:
		return invalid("setup phase", "without an environment image to write", "give Env")
	case s.Env == "":
		return nil
	case !filepath.IsAbs(s.Env) || filepath.Clean(s.Env) != s.Env:
		return invalid("environment image "+s.Env, "not an absolute path", "")
	}
	info, err := os.Lstat(s.Env)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return invalid("environment image "+s.Env, "not a file", "")
	case errors.Is(err, os.ErrNotExist) && s.SetupPhase:
		return nil
	case err != nil:
		return invalid("environment image "+s.Env, "cannot be opened", "run the setup phase first")
	}
	return nil
}

// checkFiles refuses files that would hide what the box is made of.
func checkFiles(files []sandbox.File) error {
	if len(files) > maxFiles {
		return invalid("files", fmt.Sprintf("%d of them, more than %d", len(files), maxFiles), "")
	}
	total, seen := 0, map[string]bool{}
	for _, f := range files {
		if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path || f.Path == "/" || seen[f.Path] {
			return invalid(fmt.Sprintf("file %.128q", f.Path), "not a clean absolute path of its own", "")
		}
		seen[f.Path] = true
		if f.Link != "" && (!filepath.IsAbs(f.Link) || filepath.Clean(f.Link) != f.Link || len(f.Data) > 0) {
			return invalid("file "+f.Path, "its link is not a clean absolute path alone", "")
		}
		for _, closed := range []string{sandbox.WorkDir, sandbox.EnvDir, "/proc", "/sys", "/dev", "/usr", "/run", "/tmp", filepath.Dir(guest.MachineIdentity)} {
			if within(closed, f.Path) {
				return invalid("file "+f.Path, "may not lie under "+closed, "put it under /etc or /opt")
			}
		}
		if total += len(f.Data); total > maxFileBytes {
			return invalid("files", fmt.Sprintf("more than %d bytes in all", maxFileBytes), "")
		}
	}
	return nil
}

// checkImage refuses what cannot be the root of a box. state is the driver's
// own folder: no box may see it.
func checkImage(image, state string) error {
	const hint = `give "host", or the absolute path of a folder that holds a whole root file system`
	if image == sandbox.HostImage {
		return nil
	}
	if !filepath.IsAbs(image) || filepath.Clean(image) != image {
		return invalid(fmt.Sprintf("image %.200q", image), "neither host nor an absolute path", hint)
	}
	resolved, err := filepath.EvalSymlinks(image)
	if err != nil {
		return invalid("image "+image, "no such folder", hint)
	}
	if resolved != image {
		return invalid("image "+image, "a link, which may change under the box", "give the folder it leads to: "+resolved)
	}
	if within(image, state) || within(state, image) {
		return invalid("image "+image, "holds the state of this installation", hint)
	}
	for _, shell := range []string{"bin/sh", "usr/bin/sh"} {
		if _, err := os.Lstat(filepath.Join(image, shell)); err == nil {
			return nil
		}
	}
	return invalid("image "+image, "has no /bin/sh", hint)
}
