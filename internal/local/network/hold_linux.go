package network

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// hold opens the program, so that what is started later is what was there before
// the command began. It is started outside the box: of a program that the command
// can write, as in the folder where it is built, a copy in memory is held.
func (p Program) hold() (*os.File, error) {
	f, err := os.Open(p.File)
	if err != nil {
		return nil, err
	}
	writable, err := p.writable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !writable {
		return f, nil
	}
	defer f.Close()
	return inMemory(f)
}

// writable says whether the command can change what is in f, by this name of it or
// by another one.
func (p Program) writable(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return false, errors.New("it is no program")
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink != 1 {
		return true, nil
	}
	real, err := os.Readlink(inProc(f))
	if err != nil {
		return false, err
	}
	for _, dir := range p.Writes {
		if rel, err := filepath.Rel(dir, real); err == nil && filepath.IsLocal(rel) {
			return true, nil
		}
	}
	return false, nil
}

// inMemory copies f into memory that has no name and that only its result opens.
func inMemory(f *os.File) (*os.File, error) {
	fd, err := unix.MemfdCreate("cofferdam-wire", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3, where all can be started
		fd, err = unix.MemfdCreate("cofferdam-wire", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	w := os.NewFile(uintptr(fd), "cofferdam-wire")
	defer w.Close() // nothing that can be written is started
	if _, err := io.Copy(w, f); err != nil {
		return nil, err
	}
	return os.Open(inProc(w))
}

func inProc(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
