package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/control"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // the one platform we use
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	runsc "gvisor.dev/gvisor/runsc/sandbox"
	"gvisor.dev/gvisor/runsc/specutils"

	"cofferdam/sandbox/cgroup"
)

// Bounds of the files and folders that the kernel of a box keeps in mind. What it
// does not is asked of the host each time; what it does holds up to three of the
// descriptors that it may have, which this process hands down.
const (
	maxNames         = 16384
	minNames         = 1000 // gVisor's own default for one mount
	spareDescriptors = 2000 // for sockets and programs
	descriptorsEach  = 3    // to look, to read and to write
)

// cachedNames is how many that are with so many descriptors: 6,000 of 20,000. A
// repository of more files than these is slower by half.
func cachedNames(descriptors uint64) int {
	if descriptors > maxNames*descriptorsEach+spareDescriptors {
		return maxNames
	}
	return max(minNames, (int(descriptors)-spareDescriptors)/descriptorsEach)
}

// flags are those of the sandbox program: no overlay, since the root is
// read-only, and files that nobody else changes, so that they may be cached.
// docs/PERFORMANCE.md says what each costs.
func flags(state string) []string {
	var open unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &open) != nil {
		open.Max = 0 // the least
	}
	return []string{
		fmt.Sprintf("--dcache=%d", cachedNames(open.Max)),
		"--root=" + state, "--platform=systrap", "--network=sandbox", "--overlay2=none",
		"--file-access=exclusive", "--file-access-mounts=exclusive", "--host-settings=ignore",
	}
}

// configuration reads flags the way runsc does.
func configuration(args []string) (*config.Config, error) {
	set := flag.NewFlagSet("runsc", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	config.RegisterFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	conf, err := config.NewFromFlags(set)
	if err == nil {
		conf.IgnoreCgroups = true // a box goes into its groups by itself: see limit
	}
	return conf, err
}

// silenceLibrary keeps gVisor's packages from writing to our standard error.
func silenceLibrary() {
	log.SetTarget(&log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
}

// guestFiles are the ends of the pipes that pid 1 gets.
type guestFiles struct {
	control, report *os.File // its descriptors 3 and 4
	console         *os.File // its standard output and error
}

// createContainer makes the sandbox with the bundle in dir. It starts pid 1, or
// lets all go on that was written to the folder image.
func (d *Driver) createContainer(id, dir, image string, files guestFiles) (*container.Container, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	own := *d.conf // the package writes to it
	spec, err := specutils.ReadSpec(dir, &own)
	if err != nil {
		return nil, err
	}
	args := container.Args{
		ID: id, Spec: spec, BundleDir: dir,
		PassFiles: map[int]*os.File{3: files.control, 4: files.report},
	}
	c, err := d.newContainer(&own, args, null, files.console)
	if err != nil {
		return nil, fmt.Errorf("making sandbox: %w", errors.Join(cgroup.Failed(dir), err))
	}
	ns, _ := specutils.GetNS(specs.NetworkNamespace, spec)
	err = ownPackets(ns.Path, func() error {
		if image == "" {
			return c.Start(&own)
		}
		return c.Restore(&own, image, false, false)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting sandbox: %w", err), c.Destroy())
	}
	return c, nil
}

// writeDown writes all that runs in c to the folder image, which must be empty;
// afterwards c goes on.
func writeDown(conf *config.Config, c *container.Container, image string) error {
	own := *conf
	return c.Checkpoint(&own, image, runsc.CheckpointOpts{Compression: statefile.CompressionLevelNone, Resume: true})
}

// shrink has the kernel of a box give back what it needed to start. It collects
// at once and hands back to the host in the next milliseconds.
func shrink(c *container.Container) error {
	conn, err := client.ConnectTo(c.Sandbox.ControlSocketPath)
	if err != nil {
		return fmt.Errorf("asking for less memory: %w", err)
	}
	defer conn.Close()
	return conn.Call("Usage.Reduce", &control.UsageReduceOpts{Wait: true}, nil)
}

// execute runs a program beside pid 1, without input, output or environment, and
// waits for its end or that of the box.
func execute(conf *config.Config, c *container.Container, args control.ExecArgs) (unix.WaitStatus, error) {
	pid, err := beside(conf, c, args, nil)
	if err != nil {
		return 0, err
	}
	return c.WaitPID(pid)
}

// beside starts a program beside pid 1. files are its descriptors; those of its
// standard streams that are not among them lead nowhere.
func beside(conf *config.Config, c *container.Container, args control.ExecArgs, files map[int]*os.File) (pid int32, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	own, all := *conf, map[int]*os.File{0: null, 1: null, 2: null}
	maps.Copy(all, files)
	args.WorkingDirectory, args.NoNewPrivileges = "/", true
	args.FilePayload = control.NewFilePayload(all, nil)
	return c.Execute(&own, &args)
}

// making is held while a box is made.
var making sync.Mutex

// newContainer does the part that uses what belongs to this process as a whole:
// os.Stdin, os.Stdout and os.Stderr, and specutils.ExePath. The package waits without
// end for the kernel of a box, and every other box for this one: so what has not come
// up in time is ended.
func (d *Driver) newContainer(conf *config.Config, args container.Args, in, out *os.File) (*container.Container, error) {
	making.Lock()
	defer making.Unlock()
	formerIn, formerOut, formerErr := os.Stdin, os.Stdout, os.Stderr
	os.Stdin, os.Stdout, os.Stderr = in, out, out
	defer func() { os.Stdin, os.Stdout, os.Stderr = formerIn, formerOut, formerErr }()
	specutils.ExePath = d.o.Init // it becomes cofferdam-runsc in the box's groups
	late := time.AfterFunc(d.patience, func() {
		if err := d.endStrays(args.BundleDir, "--bundle="+args.BundleDir); err != nil {
			d.o.Log.Error("ending a box that does not start", slog.String("box", args.ID), slog.Any("err", err))
		}
	})
	c, err := container.New(conf, args)
	if !late.Stop() && err != nil {
		err = fmt.Errorf("it was not up after %s: %w", d.patience, err)
	}
	return c, err
}

// Descriptors that the kernel of a box moves its standard streams to. It refuses
// to start if one of them is in use, and gVisor's package leaves it a socket and
// an event counter of this process, under the numbers that they have here.
const firstStream, streams = 256, 3

// keepClear takes those numbers here, with what closes when a program is started,
// so that nothing a box could have of this process has them. Whatever has one
// already stays.
func keepClear() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	for n := firstStream; n < firstStream+streams; n++ {
		got, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, n)
		if err != nil {
			return fmt.Errorf("taking descriptor %d: %w", n, err)
		}
		if got != n {
			_ = unix.Close(got) // nothing was written through it
		}
	}
	return nil
}

// adopt makes this process the one that orphans of its boxes go to, so that
// they can be waited for.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming subreaper: %w", err)
	}
	return nil
}

// consoleSize is how much of what pid 1 prints is kept: enough for the first
// lines of a crash.
const consoleSize = 4 << 10

// console keeps the first bytes that pid 1 prints. It only prints when
// something is very wrong.
type console struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

// read drains r until its other end is closed.
func (c *console) read(r *os.File) {
	defer r.Close()
	buf := make([]byte, consoleSize)
	for {
		n, err := r.Read(buf)
		c.mu.Lock()
		c.text = append(c.text, buf[:min(n, consoleSize-len(c.text))]...)
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.text)
}

// pipes makes the pipes between host and pid 1.
func pipes(ctx context.Context) (host, guest [3]*os.File, err error) {
	if err := ctx.Err(); err != nil {
		return host, guest, err
	}
	for i := range host {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(host[:])
			closeAll(guest[:])
			return host, guest, err
		}
		if i == 0 { // the first one leads into the box
			host[i], guest[i] = w, r
		} else {
			host[i], guest[i] = r, w
		}
	}
	return host, guest, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written through it
		}
	}
}
