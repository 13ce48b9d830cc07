package vmm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/cage"
)

// Lend lets a monitor that opens its disks by name have them: what it may write is
// its user's, the rest everybody's to read. None of them lies in a folder that
// others can enter. The driver takes back what outlives the machine.
func (m Machine) Lend() error {
	for _, d := range m.Disks {
		if err := d.lend(m.UID); err != nil {
			return fmt.Errorf("lending disk %s: %w", d.Serial, err)
		}
	}
	return nil
}

func (d Drive) lend(uid int) error {
	info, err := d.File.Stat()
	if err != nil {
		return err
	}
	if d.Writable {
		return errors.Join(d.File.Chown(uid, uid), d.File.Chmod(0o600))
	}
	if info.Mode()&0o004 != 0 {
		return nil
	}
	return d.File.Chmod(info.Mode().Perm() | 0o444)
}

// Own makes an empty file in the machine's folder that is the monitor's to write.
func (m Machine) Own(name string) (path string, err error) {
	path = filepath.Join(m.Dir, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	return path, errors.Join(f.Chown(m.UID, m.UID), f.Close())
}

// Pipe makes a named pipe in the machine's folder that the monitor may write, and
// keeps the first words that come out of it among those of p, once that is known.
func (m Machine) Pipe(name string) (path string, keep func(p *cage.Process), end func(), err error) {
	path = filepath.Join(m.Dir, name)
	if err := errors.Join(unix.Mkfifo(path, 0o600), os.Chown(path, m.UID, m.UID)); err != nil {
		return "", nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // for both, so that it never ends
	if err != nil {
		return "", nil, nil, err
	}
	keep = func(p *cage.Process) {
		b := make([]byte, 4<<10)
		for {
			n, err := f.Read(b)
			if err != nil {
				return
			}
			_, _ = p.Write(b[:n]) // only keeps it
		}
	}
	return path, keep, func() { f.Close() }, nil
}
