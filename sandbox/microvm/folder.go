package microvm

import (
	"errors"
	"os"
	"path/filepath"

	"cofferdam/sandbox/snapshot"
)

// folder is where one box has its files, and whose its memory is.
type folder struct {
	base string // of the driver
	id   string
	user int // of its monitor
}

func (f folder) path(name string) string { return filepath.Join(f.base, "boxes", f.id, name) }
func (f folder) memoryDir() string       { return filepath.Join(f.base, "memory", f.id) }
func (f folder) memoryFile() string      { return filepath.Join(f.memoryDir(), "memory") }
func (f folder) journalDir() string      { return filepath.Join(f.base, "journal", f.id) }

// makeMemory makes the file that is the machine's memory, empty.
func (f folder) makeMemory(size int64) error {
	file, err := os.OpenFile(f.memoryFile(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(size), file.Chown(f.user, f.user), file.Close())
}

// fillMemory gives the box memory of its own and begins to fill it with what is in
// a file. What it returns waits until that is done; it is called once.
func (f folder) fillMemory(from string, size int64) (wait func() error, err error) {
	if err := f.makeMemory(size); err != nil {
		return nil, err
	}
	filled := make(chan error, 1)
	go func() { filled <- snapshot.Fill(from, f.memoryFile()) }()
	return func() error { return <-filled }, nil
}

// memoryUsed is what the machine's memory takes, or may take where its monitor has
// it for itself.
func memoryUsed(b *box) int64 {
	if !b.traits().SharesMemory {
		return b.spec.Limits.Memory
	}
	n, err := snapshot.Blocks(b.memoryFile())
	if err != nil {
		return 0 // it has none
	}
	return n
}
