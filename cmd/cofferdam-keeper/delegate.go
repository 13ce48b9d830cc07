package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
)

// cgroupRoot is where control groups of version 2 are mounted.
const cgroupRoot = "/sys/fs/cgroup"

// delegable are the controllers that boxes need.
func delegable() []string { return []string{"cpu", "memory", "pids"} }

// howToDelegate is the fix of a user without control groups.
const howToDelegate = "as root: systemctl edit user@.service, with [Service] Delegate=cpu memory pids, and log in anew; then start it as systemd-run --user --scope -p Delegate=yes cofferdam serve"

// delegated returns the control group of this process, below root, if it was
// delegated to its user: version 2, with the controllers of boxes, and the
// user's to divide. self is what /proc/self/cgroup says.
func delegated(root, self string, may func(path string) error) (string, error) {
	path := ""
	for line := range strings.Lines(self) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = filepath.Clean(p)
		}
	}
	if path == "" || path == "/" {
		return "", errors.New("this process is in no control group of its own")
	}
	dir := filepath.Join(root, path)
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return "", fmt.Errorf("control groups of version 2 are not mounted at %s: %w", root, err)
	}
	for _, want := range delegable() {
		if !slices.Contains(strings.Fields(string(have)), want) {
			return "", fmt.Errorf("%s has no controller %s", dir, want)
		}
	}
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := may(filepath.Join(dir, file)); err != nil {
			return "", fmt.Errorf("%s is not delegated to this user: %w", dir, err)
		}
	}
	return dir, nil
}

// ownGroup is delegated for this process on this host.
func ownGroup() (string, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return "", errors.Join(err, fmt.Errorf("%s is not control groups of version 2", cgroupRoot))
	}
	return delegated(cgroupRoot, string(self), func(path string) error { return unix.Access(path, unix.W_OK) })
}

// keepersGroup is where the keeper is in a group that was delegated: a group
// with groups below it that have controllers may have no process of its own.
const keepersGroup = "cofferdam"

// vacate moves every process of a group that was delegated into one below it:
// the keeper, and who has started it.
func vacate(dir string) error {
	below := filepath.Join(dir, keepersGroup)
	if err := os.Mkdir(below, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for range 10 { // one that is moved may just have started another
		list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		pids := strings.Fields(string(list))
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if _, err := strconv.Atoi(pid); err != nil {
				return fmt.Errorf("process %.20q in %s", pid, dir)
			}
			err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(pid), 0o644)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("moving process %s out of %s: %w", pid, dir, err)
			}
		}
	}
	return fmt.Errorf("processes are started in %s all the time", dir)
}

// takeGroup makes the group that was delegated the root of what this process
// and its boxes see of control groups, so that the drivers find it where they
// look. The calling thread has mounts of its own and is the one that goes on.
func takeGroup(dir, at string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("namespace of control groups: %w", err)
	}
	if err := vacate(dir); err != nil {
		return err
	}
	if err := unix.Mount("cofferdam", at, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting control groups: %w", err)
	}
	return nil
}

// watched says whether boxes of what was examined are made without control groups.
func watched(findings []sandbox.Finding) bool {
	return slices.ContainsFunc(findings, func(f sandbox.Finding) bool {
		return strings.HasSuffix(f.Name, "control-groups") && f.Level == sandbox.Warn
	})
}

// groupsOf puts into the findings of a tier what a keeper of this user will
// find: the check itself moves no process into another group.
func groupsOf(findings []sandbox.Finding, dir string, err error) []sandbox.Finding {
	findings = slices.Clone(findings)
	for i := range findings {
		f := &findings[i]
		switch {
		case !strings.HasSuffix(f.Name, "control-groups") || f.Level == sandbox.OK:
		case err == nil:
			f.Level, f.Detail, f.Fix = sandbox.OK, "version 2, delegated to this user: "+dir, ""
		default:
			f.Fix = howToDelegate
		}
	}
	return findings
}
