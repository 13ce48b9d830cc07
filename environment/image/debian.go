package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cofferdam"
)

// basis is what every image of packages has beside those that are asked for.
var basis = []string{"ca-certificates", "git"}

// debianTime bounds the making of one.
const debianTime = 30 * time.Minute

// debian makes an image of Debian's packages by mmdebstrap, from the machine's
// own apt sources and with the keys they trust. Its digest is that of what was
// asked for and of the sources; it is made anew when it was removed.
func (s *Store) debian(ctx context.Context, dir string, packages []string) (Record, error) {
	const what = "debian with packages"
	if !s.o.Packages {
		return Record{}, refused(what, "this server installs no packages for repositories", fmt.Errorf("environments.packages is not set"))
	}
	packages = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(packages), basis...))))
	files, sources, suite := aptSources()
	sum := sha256.Sum256([]byte(strings.Join(packages, " ") + "\x00" + suite + "\x00" + sources))
	r := Record{Name: "debian", Source: suite + ": " + strings.Join(packages, " "), Digest: cofferdam.DigestOfSum(sum)}
	if have, err := read(dir, r.Digest); err == nil {
		now := time.Now()
		return have, os.Chtimes(filepath.Join(dir, hexOf(r.Digest)), now, now)
	}
	program := s.o.Program
	if program == "" {
		var err error
		if program, err = exec.LookPath("mmdebstrap"); err != nil {
			return r, &cofferdam.Error{Op: "image.Find", Kind: cofferdam.Invalid, Subject: what, Reason: "mmdebstrap is not installed on the server", Hint: "apt install mmdebstrap", Err: err}
		}
	}
	if sources == "" || suite == "" {
		return r, refused(what, "this machine has no apt sources, or is no Debian", nil)
	}
	return r, s.make(dir, r, func(root string) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, debianTime)
		defer cancel()
		args := []string{"--mode=root", "--variant=minbase", "--format=directory", "--quiet", "--include=" + strings.Join(packages, ","), suite, root}
		cmd := exec.CommandContext(ctx, program, append(args, files...)...)
		var said bytes.Buffer
		cmd.Stderr, cmd.WaitDelay = &tail{&said}, 5*time.Second
		if err := cmd.Run(); err != nil {
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			return 0, refused(what, "mmdebstrap: "+lines[len(lines)-1], err)
		}
		return size(root)
	})
}

// tail keeps the last bytes of what a program says.
type tail struct{ b *bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p)
	if over := t.b.Len() - 4096; over > 0 {
		t.b.Next(over)
	}
	return len(p), nil
}

// aptSources returns the files with the machine's sources, their text, and the
// name of its release.
func aptSources() (files []string, text, suite string) {
	release, _ := os.ReadFile("/etc/os-release") // without it there is no suite
	for line := range strings.Lines(string(release)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			suite = strings.Trim(v, `"`)
		}
	}
	all, _ := filepath.Glob("/etc/apt/sources.list.d/*") // the pattern is well formed
	for _, f := range append(all, "/etc/apt/sources.list") {
		if !strings.HasSuffix(f, ".sources") && !strings.HasSuffix(f, ".list") {
			continue
		}
		if lines, err := os.ReadFile(f); err == nil && len(bytes.TrimSpace(lines)) > 0 {
			files, text = append(files, f), text+string(lines)
		}
	}
	return files, text, suite
}

// size adds up the bytes of all plain files.
func size(root string) (total int64, err error) {
	err = filepath.WalkDir(root, func(_ string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return err
	})
	return total, err
}
