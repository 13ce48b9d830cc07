package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"cofferdam/sandbox/snapshot"
	"cofferdam/sandbox/volume"
)

// maxTemplates bounds the empty images that are kept, one for each size of
// workspace that was asked for. Each holds less than 2 MiB for 4 GiB.
const maxTemplates = 16

// templates are empty images that workspaces are copied from: making a file
// system starts a program, copying what an empty one holds does not.
type templates struct {
	mu  sync.Mutex
	dir string
}

// workspace makes an empty image of the given size at path.
func (t *templates) workspace(ctx context.Context, path string, size int64) error {
	from, err := t.find(ctx, "empty", size, makeImage)
	if err != nil {
		return err
	}
	return snapshot.Copy(from, path)
}

// kept makes an empty image of a workspace that outlives its box.
func (t *templates) kept(ctx context.Context, path string, size int64) error {
	from, err := t.find(ctx, "kept", size, volume.Make)
	if err != nil {
		return err
	}
	return snapshot.Copy(from, path)
}

// find returns the template of a kind and size, which is made when it is first asked for.
// Nothing is ever written to it, and it goes with the keeper's program folder.
func (t *templates) find(ctx context.Context, kind string, size int64, build func(context.Context, string, int64) error) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	path := filepath.Join(t.dir, fmt.Sprintf("%s-%d.img", kind, size))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	old, err := filepath.Glob(filepath.Join(t.dir, kind+"-*"))
	if err != nil {
		return "", err
	}
	if len(old) >= maxTemplates {
		for _, p := range old {
			err = errors.Join(err, os.Remove(p))
		}
	}
	fresh := path + ".new"
	if err := errors.Join(err, os.RemoveAll(fresh)); err != nil {
		return "", err
	}
	if err := build(ctx, fresh, size); err != nil {
		return "", err
	}
	return path, os.Rename(fresh, path)
}
