package sandboxtest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// fewFiles is what FewFiles leaves a process.
const fewFiles = 512

// FewFiles lets this process have few files open until the test ends: fewer than
// Nest(t, dir, 2000) has folders.
func FewFiles(t testing.TB) {
	t.Helper()
	var before unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: fewFiles, Max: before.Max})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
}

// Nest makes many folders in dir, each in the one before.
func Nest(t testing.TB, dir string, many int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range many {
		if err == nil {
			err = unix.Mkdirat(at, "d", 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		above := at
		at, err = unix.Openat(above, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(above)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(at)
}
