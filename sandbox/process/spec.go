package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/wall"
)

// Bounds of files that a box is given: a configuration and a bundle of
// certificates fit, a data set does not.
const (
	maxFiles     = 64
	maxFileBytes = 4 << 20
)

// runSize is for sockets and pid files.
const runSize = 8 << 20

// maxShared is what browsers and data bases want of /dev/shm.
const maxShared = 512 << 20

// defaultHostname is that of a box whose Spec gives none.
const defaultHostname = "box"

// resolver is /etc/resolv.conf. Five tries of two seconds: a server that
// restarts is back by then.
const resolver = "nameserver 10.99.0.1\noptions timeout:2 attempts:5\n"

var hostnames = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// shared is the size of /dev/shm.
func shared(l cofferdam.Limits) int64 { return min(maxShared, l.Memory/8) }

// checkFiles refuses files that would hide what a box is made of.
func checkFiles(op string, files []sandbox.File, closed []string) error {
	if len(files) > maxFiles {
		return invalid(op, "files", fmt.Sprintf("%d of them, more than %d", len(files), maxFiles), "")
	}
	total, seen := 0, map[string]bool{}
	for _, f := range files {
		if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path || f.Path == "/" || seen[f.Path] {
			return invalid(op, fmt.Sprintf("file %.128q", f.Path), "not a clean absolute path of its own", "")
		}
		seen[f.Path] = true
		if f.Link != "" && (closed == nil || !filepath.IsAbs(f.Link) || filepath.Clean(f.Link) != f.Link || len(f.Data) > 0) {
			return invalid(op, "file "+f.Path, "its link is not a clean absolute path alone", "")
		}
		for _, dir := range append([]string{sandbox.WorkDir, "/proc", "/sys", "/dev"}, closed...) {
			if within(dir, f.Path) {
				return invalid(op, "file "+f.Path, "may not lie under "+dir, "put it under /etc, /opt or "+sandbox.HomeDir)
			}
		}
		if total += len(f.Data); total > maxFileBytes {
			return invalid(op, "files", fmt.Sprintf("more than %d bytes in all", maxFileBytes), "")
		}
	}
	return nil
}

// addFile plans a file with its bytes, or a link.
func addFile(p *wall.Plan, f sandbox.File) {
	if f.Link != "" {
		p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Link, To: f.Path, From: f.Link})
		return
	}
	mode := uint32(f.Mode.Perm())
	if mode == 0 {
		mode = 0o444
	}
	p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.File, To: f.Path, Mode: mode, At: int64(len(p.Data)), Size: int64(len(f.Data))})
	p.Data = append(p.Data, f.Data...)
}

// within says whether path is folder or lies in it.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// realFolder wants a folder whose path has no link in it: one could be changed
// under the box.
func realFolder(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return errors.New("not a clean absolute path")
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("no such folder")
		}
		return err
	}
	if resolved != path {
		return fmt.Errorf("a link leads it to %s", resolved)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("not a folder")
	}
	return nil
}
