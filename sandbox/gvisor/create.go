package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/quota"
)

// Bounds of Spec.Files: a configuration and a bundle of certificates fit, a
// data set does not.
const (
	maxFiles     = 64
	maxFileBytes = 4 << 20
)

// startPatience is how long pid 1 may take to answer; a loaded host needs
// seconds, never a minute.
const startPatience = time.Minute

// Create makes a box and returns when it can run commands.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if err := d.checkSpec(&spec); err != nil {
		return nil, err
	}
	if err := d.checker.refuse(ctx); err != nil {
		return nil, err
	}
	if err := d.reserve(spec.ID); err != nil {
		return nil, err
	}
	b := &box{d: d, Lacks: d.Lacks, life: sandbox.NewLife(), spec: spec, created: time.Now(), dir: d.boxDir(spec.ID), meter: newMeter()}
	if err := b.build(ctx); err != nil {
		// Whatever ctx says, what was built so far must go.
		if left := b.tearDown("it could not be started"); left != nil {
			d.o.Log.ErrorContext(ctx, "removing what is left of a box that did not start", slog.Any("box", spec.ID), slog.Any("err", left))
		}
		d.settle(spec.ID, nil)
		return nil, wrap(err, spec.ID)
	}
	if err := b.life.Move(sandbox.Ready, "it was made", sandbox.ByDriver); err != nil {
		return nil, err
	}
	d.settle(spec.ID, b)
	return b, nil
}

// wrap makes err one that a person can read.
func wrap(err error, id cofferdam.BoxID) error {
	var known *cofferdam.Error
	if errors.As(err, &known) {
		return err
	}
	return &cofferdam.Error{
		Op: "gvisor.Create", Kind: cofferdam.Unavailable, Subject: "start box " + string(id), Err: err,
		Reason: err.Error(), Hint: "cofferdam doctor checks this host",
	}
}

var hostnames = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// checkSpec refuses what cannot be had and fills in what is left open.
func (d *Driver) checkSpec(s *sandbox.Spec) (err error) {
	if s.Tier == "" {
		s.Tier = sandbox.GVisor
	}
	if s.Tier != sandbox.GVisor {
		return missing(fmt.Sprintf("tier %.32q", string(s.Tier)), "this driver only makes gvisor boxes", "ask for tier gvisor", nil)
	}
	if s.Limits, err = limits(s.Limits); err != nil {
		return err
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
	return errors.Join(d.checkEnv(*s), checkFiles(s.Files))
}

func (d *Driver) checkEnv(s sandbox.Spec) error {
	switch {
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
	case err != nil && !(errors.Is(err, os.ErrNotExist) && s.SetupPhase):
		return invalid("environment image "+s.Env, "cannot be opened", "run the setup phase first")
	case d.o.User:
		return userLacks(sandbox.CanSetup, "it can mount no environment image")
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
		for _, closed := range []string{sandbox.WorkDir, sandbox.EnvDir, "/proc", "/sys", "/dev", "/usr", "/run", "/" + programDir} {
			if within(closed, f.Path) {
				return invalid("file "+f.Path, "may not lie under "+closed, "put it under /etc, /opt or "+sandbox.HomeDir)
			}
		}
		if total += len(f.Data); total > maxFileBytes {
			return invalid("files", fmt.Sprintf("more than %d bytes in all", maxFileBytes), "")
		}
	}
	return nil
}

// build puts a box together. Everything it makes is known to tearDown.
func (b *box) build(ctx context.Context) error {
	for _, dir := range []string{b.path("work"), b.path("env"), b.path("files")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	files, err := b.placeFiles()
	if err != nil {
		return err
	}
	var binds []bind
	if b.root, binds, err = b.d.root(b.spec.Image, files, b.sharedFiles()); err != nil {
		return err
	}
	if err := b.makeDisks(ctx); err != nil {
		return err
	}
	if b.net, err = netns.New(); err != nil {
		return missing("network namespace", err.Error(), "load the kernel module tun and run as root", err)
	}
	if err := b.d.cgroups.prepare(); err != nil {
		return missing("control groups", err.Error(), "mount the memory, cpu and pids controllers writable", err)
	}
	err = bundle{
		id: b.spec.ID, dir: b.dir, root: b.root, hostname: b.spec.Hostname, netns: b.net.Path(), limits: b.spec.Limits,
		binds: append(binds, files...), env: b.spec.Env != "", writable: b.spec.SetupPhase, cgroups: b.d.cgroups,
	}.write()
	if err != nil {
		return err
	}
	return b.boot(ctx)
}

// boot starts the sandbox with pid 1 in it and waits for its first word.
func (b *box) boot(ctx context.Context) error {
	host, inside, err := pipes(ctx)
	if err != nil {
		return err
	}
	b.console = new(console)
	go b.console.read(host[2])
	files := guestFiles{control: inside[0], report: inside[1], console: inside[2]}
	b.container, err = createContainer(b.d.conf, b.d.o.Runsc, string(b.spec.ID), b.dir, files)
	closeAll(inside[:])
	if err != nil {
		closeAll(host[:2])
		return missing("gvisor", "the sandbox did not start: "+err.Error(), "cofferdam doctor checks this host", err)
	}
	b.host, err = guest.NewHost(host[0], host[1], b.d.journalDir(b.spec.ID), guest.Options{
		Config: guest.Config{
			UID: sandbox.UserID, GID: sandbox.UserID,
			OpenFiles: b.spec.Limits.OpenFiles, PIDs: b.spec.Limits.PIDs,
			Sized: []string{"/tmp", sandbox.HomeDir, "/dev/shm"},
		},
		Watch: b.watch,
	})
	if err != nil {
		closeAll(host[:2])
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := b.host.Ready(ctx); err != nil {
		return errors.Join(err, b.console.err())
	}
	return nil
}

// err returns what pid 1 printed as an error, if anything.
func (c *console) err() error {
	if s := strings.TrimSpace(c.String()); s != "" {
		return fmt.Errorf("pid 1 printed: %s", s)
	}
	return nil
}

// makeDisks makes and mounts the workspace and the environment.
func (b *box) makeDisks(ctx context.Context) error {
	size := b.spec.Limits.Disk
	free, _, err := space(b.dir)
	if err != nil {
		return err
	}
	if !b.d.o.User && free < size {
		return &cofferdam.Error{
			Op: "gvisor.Create", Kind: cofferdam.Exhausted, Subject: "workspace",
			Reason: fmt.Sprintf("it may grow to %d MiB, and %d MiB are free on the disk of the state folder", size>>20, free>>20),
			Hint:   "free space there, or give a smaller limit of disk",
		}
	}
	if err := b.makeWorkspace(ctx, size); err != nil {
		return err
	}
	if b.spec.Env == "" {
		return nil
	}
	if b.spec.SetupPhase {
		if _, err := os.Lstat(b.spec.Env); errors.Is(err, os.ErrNotExist) {
			if err := makeImage(ctx, b.spec.Env, size); err != nil {
				return missing("environment image", err.Error(), "install e2fsprogs; its folder must be writable", err)
			}
		}
	}
	if err := b.mount(b.spec.Env, "env", b.spec.SetupPhase); err != nil {
		return missing("environment image", err.Error(), "remove the image so that it is made again", err)
	}
	return nil
}

// makeWorkspace makes a workspace that cannot grow beyond size: by project
// quota where the file system of the state folder has it, else as an image.
func (b *box) makeWorkspace(ctx context.Context, size int64) (err error) {
	dir := b.path("work")
	if b.d.o.User {
		return b.makeInMemory(size)
	}
	if !quota.Enforced(b.dir) {
		if err := makeImage(ctx, b.path("work.img"), size); err != nil {
			return missing("workspace with a size", err.Error(), "install e2fsprogs; the state folder must be writable", err)
		}
		if err := b.mount(b.path("work.img"), "work", true); err != nil {
			return missing("workspace with a size", err.Error(), "load the kernel modules loop and ext4", err)
		}
		return nil
	}
	if b.project, err = b.d.projects.Begin(dir, size, inodes(size)); err == nil {
		err = os.Chown(dir, sandbox.UserID, sandbox.UserID)
	}
	if err == nil {
		err = mountFolder(dir)
	}
	if err != nil {
		return missing("workspace with a size", err.Error(), "mend the project quotas of the state folder's file system, or mount it without prjquota", err)
	}
	return nil
}

// mount mounts an image in the box's folder. A writable one loses the folder
// that mkfs put there: a workspace starts empty.
func (b *box) mount(image, name string, writable bool) error {
	if err := mountImage(image, b.path(name), !writable); err != nil {
		return err
	}
	if !writable {
		return nil
	}
	err := os.Remove(filepath.Join(b.path(name), "lost+found"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// placeFiles writes Spec.Files, and what says a box's own name, into the box's
// folder and binds each to its place.
func (b *box) placeFiles() ([]bind, error) {
	files := b.spec.Files
	if b.spec.Hostname != defaultHostname {
		files = append([]sandbox.File{
			{Path: "/etc/hostname", Data: []byte(b.spec.Hostname + "\n")},
			{Path: "/etc/hosts", Data: []byte(hosts(b.spec.Hostname))},
		}, files...)
	}
	t := &tree{dir: b.path("files")}
	binds := make([]bind, 0, len(files))
	for i, f := range files {
		if f.IsShared() {
			continue
		}
		name := fmt.Sprintf("/%d", i)
		if err := t.write(name, f.Data, fileMode(f)); err != nil {
			return nil, err
		}
		binds = append(binds, bind{filepath.Join(t.dir, name), f.Path})
	}
	return binds, nil
}

// sharedFiles are those of Spec.Files that the root folder holds.
func (b *box) sharedFiles() []sandbox.File {
	return slices.DeleteFunc(slices.Clone(b.spec.Files), func(f sandbox.File) bool { return !f.IsShared() })
}

func fileMode(f sandbox.File) os.FileMode {
	if f.Mode.Perm() == 0 {
		return 0o444
	}
	return f.Mode.Perm()
}

func inBind(binds []bind, path string) bool {
	for _, x := range binds {
		if within(x.to, path) {
			return true
		}
	}
	return false
}
