package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
)

// machineProgram is this program's name where it is pid 1 of a virtual machine:
// the kernel starts it from the initramfs.
const machineProgram = "/init"

// Bounds of the start of a machine.
const (
	devicePatience = 20 * time.Second
	devicePause    = time.Millisecond
	runSize        = 8 << 20 // of /run: sockets and pid files
	identitySize   = 64 << 10
)

// newRoot is where the box's root is built; the initramfs itself cannot be pivoted.
const newRoot = "/new"

// bootedWord is printed on the console once the kernel runs a program: the host
// takes it as the proof that its processor can run machines.
const bootedWord = "cofferdam-init: the machine runs"

// control returns what joins this process to the host: the two pipes it was
// given, or the serial port of the machine that it is pid 1 of.
func control() (io.Reader, io.Writer, error) {
	if os.Getpid() != 1 || os.Args[0] != machineProgram {
		closeOnExec()
		return os.NewFile(controlIn, "control-in"), os.NewFile(controlOut, "control-out"), nil
	}
	port, err := bootMachine()
	return port, port, err
}

// bootMachine makes what is a box's around pid 1 of a virtual machine, and
// returns the serial port that joins it to the host.
func bootMachine() (io.ReadWriter, error) {
	for _, m := range []struct{ kind, dir string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := mountNew(m.kind, m.dir, m.kind, unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(os.Stderr, bootedWord)
	if err := loadModules("/modules"); err != nil {
		return nil, err
	}
	m, err := readMachine()
	if err != nil {
		return nil, err
	}
	if err := setClock(m.Time); err != nil {
		return nil, err
	}
	if err := reseed(m.Seed); err != nil {
		return nil, err
	}
	port, err := openPort() // before the root changes: nothing else may see it
	if err != nil {
		return nil, err
	}
	if err := unix.Sethostname([]byte(m.Hostname)); err != nil {
		return nil, fmt.Errorf("name machine: %w", err)
	}
	if err := network(m.MTU); err != nil {
		return nil, err
	}
	if err := harden(); err != nil {
		return nil, err
	}
	return port, buildRoot(m)
}

// mountNew mounts at a folder that is made first.
func mountNew(source, dir, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, dir, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// moduleOptions are those of modules that need any. Checksums that a device is to
// complete, and packets that it is to cut, would reach the host as they are.
var moduleOptions = map[string]string{"virtio_net": "csum=0 gso=0"}

// loadModules loads what the file order lists, in its order.
func loadModules(dir string) error {
	order, err := os.ReadFile(filepath.Join(dir, "order"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		flags := 0
		if !strings.HasSuffix(name, ".ko") {
			flags = unix.MODULE_INIT_COMPRESSED_FILE
		}
		err = unix.FinitModule(int(f.Fd()), moduleOptions[strings.SplitN(name, ".", 2)[0]], flags)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load module %s: %w", name, err)
		}
	}
	return nil
}

// await calls find until it has an answer: devices appear some time after their
// driver.
func await(what string, find func() string) (string, error) {
	for deadline := time.Now().Add(devicePatience); ; time.Sleep(devicePause) {
		if path := find(); path != "" {
			return path, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("find %s: there is none", what)
		}
	}
}

// disk returns the device with a serial number.
func disk(serial string) (string, error) {
	order := kernelWord(guest.DiskOrder)
	return await("disk "+serial, func() string {
		if order != "" {
			path := diskInOrder(order, serial)
			if _, err := os.Stat(path); err != nil {
				return ""
			}
			return path
		}
		found, _ := filepath.Glob("/sys/block/vd*/serial") // the pattern is good
		for _, path := range found {
			if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == serial {
				return "/dev/" + filepath.Base(filepath.Dir(path))
			}
		}
		return ""
	})
}

// openPort opens what joins this process to the host: the serial port with our
// name, or what the kernel's command line names. Reads block: the port is no
// descriptor that Go's poller can serve at both ends of a snapshot.
func openPort() (io.ReadWriter, error) {
	if kernelWord(guest.PortKind) == guest.PortVsock {
		return listenHost()
	}
	const name = guest.PortName
	path, err := await("serial port "+name, func() string {
		found, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, path := range found {
			if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == name {
				return "/dev/" + filepath.Base(filepath.Dir(path))
			}
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return portReader{os.NewFile(uintptr(fd), path)}, nil
}

// portReader reads a serial port. Its end of file means that the host is away,
// as between a snapshot and what comes of it: it comes back.
type portReader struct{ *os.File }

// Read waits over the host's absence.
func (p portReader) Read(b []byte) (int, error) {
	for {
		n, err := p.File.Read(b)
		if n > 0 || (err != nil && !errors.Is(err, io.EOF)) {
			return n, err
		}
		time.Sleep(devicePause)
	}
}

func readMachine() (guest.Machine, error) {
	path, err := disk(guest.DiskMachine)
	if err != nil {
		return guest.Machine{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return guest.Machine{}, err
	}
	defer f.Close()
	return guest.ReadMachine(f)
}

// buildRoot puts the box's root together and enters it: the image below, what
// is ours above it in memory, read-only once it is complete.
func buildRoot(m guest.Machine) error {
	root, err := disk(guest.DiskRoot)
	if err != nil {
		return err
	}
	const walls = unix.MS_NOSUID | unix.MS_NODEV
	if err := mountNew(root, "/image", "erofs", walls|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	if err := mountNew("own", "/own", "tmpfs", walls, "mode=0755,size=16m"); err != nil {
		return err
	}
	for _, dir := range []string{"/own/upper", "/own/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mountNew("box", newRoot, "overlay", walls, "lowerdir=/image,upperdir=/own/upper,workdir=/own/work"); err != nil {
		return err
	}
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "work", "env", "home/agent", "run", "etc", guest.MachineIdentity} {
		if err := os.MkdirAll(filepath.Join(newRoot, dir), 0o755); err != nil {
			return err
		}
	}
	for _, f := range m.Files {
		if err := place(f); err != nil {
			return fmt.Errorf("place file %s: %w", f.Path, err)
		}
	}
	if err := unix.Mount("", newRoot, "", unix.MS_REMOUNT|unix.MS_RDONLY|walls, ""); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	if err := mountFolders(m); err != nil {
		return err
	}
	return enterRoot()
}

// mountFolders mounts what a box can write.
func mountFolders(m guest.Machine) error {
	const walls = unix.MS_NOSUID | unix.MS_NODEV
	owner := fmt.Sprintf(",uid=%d,gid=%d", sandbox.UserID, sandbox.UserID)
	for _, t := range []struct {
		dir  string
		size int64
		mode string
	}{
		{"/tmp", m.Temp, "mode=1777"},
		{sandbox.HomeDir, m.Temp, "mode=0700" + owner},
		{"/run", runSize, "mode=0755" + owner},
		{guest.MachineIdentity, identitySize, "mode=0755"},
	} {
		if err := unix.Mount("tmpfs", newRoot+t.dir, "tmpfs", walls, fmt.Sprintf("size=%d,%s", t.size, t.mode)); err != nil {
			return fmt.Errorf("mount %s: %w", t.dir, err)
		}
	}
	disks := []struct{ serial, dir, mode string }{{guest.DiskWork, sandbox.WorkDir, "rw"}}
	if m.Env != "" {
		disks = append(disks, struct{ serial, dir, mode string }{guest.DiskEnv, sandbox.EnvDir, m.Env})
	}
	for _, d := range disks {
		path, err := disk(d.serial)
		if err != nil {
			return err
		}
		flags, data := uintptr(walls|unix.MS_NOATIME), "discard"
		if d.mode != "rw" {
			flags, data = flags|unix.MS_RDONLY, ""
		}
		if err := unix.Mount(path, newRoot+d.dir, "ext4", flags, data); err != nil {
			return fmt.Errorf("mount %s: %w", d.dir, err)
		}
		if d.mode != "rw" {
			continue
		}
		// A workspace starts empty; what somebody has put in the place of this stays.
		err = unix.Rmdir(newRoot + d.dir + "/lost+found")
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("empty %s: %w", d.dir, err)
		}
	}
	return mountDevices(m.Shared)
}

// mountDevices makes a /dev with what a box of any tier has there, and nothing
// of the machine's own: no disk, no serial port, no memory.
func mountDevices(shared int64) error {
	dev := newRoot + "/dev"
	if err := unix.Mount("dev", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		path := filepath.Join(dev, d.name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", d.name, err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	const walls = unix.MS_NOSUID | unix.MS_NOEXEC
	return errors.Join(
		mountNew("devpts", dev+"/pts", "devpts", walls, "newinstance,ptmxmode=0666,mode=0620,gid=5"),
		mountNew("shm", dev+"/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d", shared)),
	)
}

// enterRoot makes the new root the only one: what the initramfs had, devices of
// the machine too, lies below it and can be reached by no path.
func enterRoot() error {
	for _, m := range []struct {
		kind, dir string
		flags     uintptr
	}{{"proc", "/proc", 0}, {"sysfs", "/sys", unix.MS_RDONLY}} {
		if err := unix.Mount(m.kind, newRoot+m.dir, m.kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	if err := unix.Mount("groups", newRoot+groupDir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", groupDir, err)
	}
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	return unix.Chdir("/")
}
