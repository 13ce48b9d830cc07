package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cofferdam"
)

// workspace is the folder that the command may write.
type workspace struct {
	dir   string // as the command sees it, without links
	from  string // what is there: dir itself, or a copy of it
	inner string // where the command starts, in dir
	git   string // folder of the repository whose linked worktree dir is; "" for none
}

// findWorkspace looks at the folder a person named, or the current one.
func findWorkspace(named string, home string, s state) (workspace, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return workspace{}, noWorkspace(named, "the current folder is gone", "change into one that exists")
	}
	if cwd, err = filepath.EvalSymlinks(cwd); err != nil {
		return workspace{}, noWorkspace(cwd, plain(err), "change into a folder that can be read")
	}
	if named == "" {
		named = cwd
	}
	dir, err := filepath.Abs(named)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return workspace{}, noWorkspace(named, plain(err), "name a folder that exists with --workspace")
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return workspace{}, noWorkspace(dir, "it is no folder", "name a folder with --workspace")
	}
	if err := checkWorkspace(dir, home, s); err != nil {
		return workspace{}, err
	}
	if _, err := os.Stat(dir + "/."); err != nil {
		return workspace{}, noWorkspace(dir, plain(err), "change into a folder that you may enter, or name one with --workspace")
	}
	w := workspace{dir: dir, from: dir, inner: dir, git: gitFolder(dir)}
	if within(cwd, dir) {
		w.inner = cwd
	}
	return w, nil
}

func noWorkspace(dir, reason, hint string) error {
	return &cofferdam.Error{Op: "local.Run", Kind: cofferdam.Invalid, Subject: "workspace " + dir, Reason: reason, Hint: hint}
}

// checkWorkspace refuses folders whose writing would undo the box: what decides
// about this user's next login, or about this machine, is not a workspace.
func checkWorkspace(dir, home string, s state) error {
	hint := "change into a project's own folder, or name one with --workspace"
	if dir == "/tmp" || dir == "/var/tmp" {
		return noWorkspace(dir, "it is everybody's, and programs keep sockets there that take commands", hint)
	}
	if within(dir, s.live) || within(dir, s.dir) && !within(dir, s.path("copies")) {
		return noWorkspace(dir, "it lies in the record of all runs", hint)
	}
	for _, system := range []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/lib", "/var/run"} {
		if within(dir, system) {
			return noWorkspace(dir, "it is part of this machine's system", hint)
		}
		if within(system, dir) {
			return noWorkspace(dir, "it holds a part of this machine's system", hint)
		}
	}
	for _, home := range append(homes(), home) {
		if home != "" && within(home, dir) {
			return noWorkspace(dir, "it holds the whole home folder", hint)
		}
		if err := checkHidden(dir, home, hint); err != nil {
			return err
		}
	}
	if s.dir != "" && (within(s.dir, dir) || within(s.live, dir)) {
		return noWorkspace(dir, "it holds the record of all runs", hint)
	}
	return nil
}

// homes are the home folders of this machine's people and the one of this user
// that HOME need not name, and the folder they are in.
func homes() []string {
	list := []string{"/home"}
	data, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return list
	}
	for text := range strings.Lines(string(data)) {
		f := strings.Split(text, ":")
		if len(f) < 7 || !filepath.IsAbs(f[5]) {
			continue
		}
		uid, err := strconv.Atoi(f[2])
		if err != nil || uid != os.Geteuid() && (uid < firstPerson || uid == nobody) {
			continue
		}
		if home, err := filepath.EvalSymlinks(f[5]); err == nil && home != "/" {
			list = append(list, home)
		}
	}
	return list
}

// Numbers of users, as systemd has them: people begin at the first.
const (
	firstPerson = 1000
	nobody      = 65534
)

// checkHidden refuses a folder below a hidden one of the home folder: there is
// where programs keep their credentials and what they run at the next login.
func checkHidden(dir, home, hint string) error {
	if home == "" || !within(dir, home) {
		return nil
	}
	rel, err := filepath.Rel(home, dir)
	if err != nil {
		return noWorkspace(dir, plain(err), hint)
	}
	first, _, _ := strings.Cut(rel, string(filepath.Separator))
	switch {
	case !strings.HasPrefix(first, "."), first == ".cache", strings.HasPrefix(rel, ".local/share/"), strings.HasPrefix(rel, ".local/state/"):
		return nil
	}
	return noWorkspace(dir, fmt.Sprintf("it lies in %s, where programs keep credentials and settings", filepath.Join(home, first)), hint)
}

// copy makes w a copy of itself in the state folder; the original is not
// touched. Where the file system can, its data is shared until it is written.
func (w *workspace) copy(ctx context.Context, s state, id cofferdam.SessionID) error {
	failed := func(reason string, err error) error {
		hint := "free some space, or name a smaller folder with --workspace; the original is untouched"
		if errors.Is(err, fs.ErrPermission) {
			hint = "make all of it readable to you, or name another folder with --workspace; the original is untouched"
		}
		return &cofferdam.Error{
			Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "copy of " + w.dir, Reason: reason, Hint: hint, Err: err,
		}
	}
	if w.git != "" {
		return noWorkspace(w.dir, "it is a linked worktree of git: a copy would share its branch and index with the original",
			"run without --copy, or in a clone")
	}
	place := s.path("copies", string(id))
	if err := os.MkdirAll(place, 0o700); err != nil {
		return failed(plain(err), err)
	}
	to := filepath.Join(place, filepath.Base(w.dir))
	if err := copyTree(ctx, w.dir, to); err != nil {
		reason := plain(err)
		if gone := os.RemoveAll(place); gone != nil {
			reason += "; what was copied is left in " + place
		}
		return failed(reason, err)
	}
	w.from = to
	return nil
}
