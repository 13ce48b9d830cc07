package microvm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// holdEnv opens the environment that the box reads, for as long as the box is
// there: a machine that comes back from disk must find the very file that it knew,
// whatever lies under that name by then.
func (b *box) holdEnv() (err error) {
	if b.spec.Env != "" && !b.spec.SetupPhase && b.env == nil {
		b.env, err = os.Open(b.spec.Env)
	}
	return err
}

// openEnv opens the environment for a monitor: by its name if that still leads to
// it, since some monitors open it again by name, else by the descriptor that is held.
func (b *box) openEnv() (*os.File, error) {
	if b.spec.SetupPhase {
		return os.OpenFile(b.spec.Env, os.O_RDWR, 0)
	}
	held, err := b.env.Stat()
	if err != nil {
		return nil, err
	}
	if f, err := os.Open(b.spec.Env); err == nil {
		if info, err := f.Stat(); err == nil && os.SameFile(held, info) {
			return f, nil
		}
		f.Close() // it is another one
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", b.env.Fd()))
}

// envKey names the environment that the box has as it is, "" for none.
func (b *box) envKey() (string, error) {
	if b.spec.Env == "" {
		return "", nil
	}
	var st unix.Stat_t
	err := error(nil)
	if b.env != nil {
		err = unix.Fstat(int(b.env.Fd()), &st)
	} else {
		err = unix.Lstat(b.spec.Env, &st)
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Ctim.Nano()), err
}
