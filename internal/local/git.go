package local

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxGitFile bounds what is read of a file of git that names a folder.
const maxGitFile = 4096

// gitFolder returns the folder that a linked worktree at dir shares with its
// repository, and that a commit in it has to write; "" if dir is none.
//
// What .git says is hostile text: a checkout may name any folder, and it would
// become writable. So the repository has to say the same: the folder is
// NAME/worktrees/ID, and the file gitdir in it, which lies outside the workspace,
// names this .git. Its file commondir is not believed.
func gitFolder(dir string) string {
	dotGit := filepath.Join(dir, ".git")
	info, err := os.Lstat(dotGit)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	own, ok := strings.CutPrefix(line(dotGit), "gitdir: ")
	if !ok {
		return ""
	}
	if !filepath.IsAbs(own) {
		own = filepath.Join(dir, own)
	}
	own, err = filepath.EvalSymlinks(own)
	if err != nil || within(own, dir) {
		return ""
	}
	back := line(filepath.Join(own, "gitdir"))
	if !filepath.IsAbs(back) {
		back = filepath.Join(own, back)
	}
	if same, err := filepath.EvalSymlinks(back); err != nil || same != dotGit {
		return ""
	}
	common := filepath.Dir(filepath.Dir(own))
	if filepath.Base(filepath.Dir(own)) != "worktrees" || !isRepository(common) {
		return ""
	}
	return common
}

// isRepository says whether dir has what every repository has.
func isRepository(dir string) bool {
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			return false
		}
	}
	head := line(filepath.Join(dir, "HEAD"))
	return strings.HasPrefix(head, "ref: refs/") || len(head) >= 40
}

// line returns the first line of a small file.
func line(path string) string {
	// A pipe in its place would make this wait for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, maxGitFile))
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimRight(first, "\r")
}

// within says whether path is dir or lies in it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && (rel == "." || filepath.IsLocal(rel))
}

// gitSettings are the files of settings outside repositories, which a box does
// not see: they can hold credentials.
func gitSettings(getenv func(string) string) []string {
	config := getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(getenv("HOME"), ".config")
	}
	return []string{"/etc/gitconfig", filepath.Join(config, "git", "config"), filepath.Join(getenv("HOME"), ".gitconfig")} // the last one counts
}

// maxSettings bounds a file of git's settings.
const maxSettings = 1 << 20

// gitIdentity is what git in a box is told of the caller: name and address for
// commits, out of the section user of the files, and nothing else of them.
func gitIdentity(files []string) []byte {
	found := map[string]string{}
	for _, path := range files {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(f, maxSettings))
		f.Close()
		if err != nil {
			continue
		}
		section := ""
		for text := range strings.Lines(string(data)) {
			text = strings.TrimSpace(text)
			if strings.HasPrefix(text, "[") {
				section = strings.ToLower(text)
			}
			key, value, ok := strings.Cut(text, "=")
			key = strings.ToLower(strings.TrimSpace(key))
			if section == "[user]" && ok && (key == "name" || key == "email") {
				found[key] = strings.TrimSpace(value)
			}
		}
	}
	var b []byte
	for _, key := range []string{"name", "email"} {
		if v := found[key]; v != "" {
			b = append(b, "[user]\n\t"+key+" = "+v+"\n"...)
		}
	}
	return b
}
