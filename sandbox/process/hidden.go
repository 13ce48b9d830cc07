package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam/sandbox/wall"
)

// hiddenHome are patterns of what holds credentials though its name does not say
// so: beside programs that are shown, and of programs that keep no dot.
var hiddenHome = []string{
	"snap", ".local/share/uv/credentials", ".npm-global/etc", ".nvm/versions/node/*/etc", ".volta/tools/image/node/*/etc", ".asdf/installs/nodejs/*/etc",
	".local/share/mise/installs/node/*/etc", ".pyenv/versions/*/pip.conf",
}

// emptySize bounds what is put in the place of a hidden folder; a workspace may lie in it.
const emptySize = 1 << 20

// empty plans nothing in the place of a file or folder.
func empty(path string) []wall.Mount {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil
	case info.IsDir():
		return []wall.Mount{{Kind: wall.Memory, To: path, Mode: 0o755, Size: emptySize, UID: os.Geteuid()}}
	}
	return []wall.Mount{{Kind: wall.Hidden, To: path}}
}

// elsewhere plans to hide what is hidden in a home folder under the other
// names it has: where links with a dot lead, as those who keep their settings in
// a repository have them, and hiddenHome.
func elsewhere(home string) []wall.Mount {
	var list []wall.Mount
	for _, dir := range []string{"", ".config", ".ssh", ".aws", ".gnupg", ".docker", ".kube"} {
		entries, err := os.ReadDir(filepath.Join(home, dir))
		if err != nil { // nothing of it can be seen inside either
			continue
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			shown := slices.ContainsFunc(shownDots, func(d string) bool { return within(name, d) })
			if !strings.HasPrefix(name, ".") || e.Type()&os.ModeSymlink == 0 || shown {
				continue
			}
			target, err := filepath.EvalSymlinks(filepath.Join(home, name))
			if err == nil && within(home, target) && target != home && !strings.HasPrefix(target[len(home)+1:], ".") {
				list = append(list, empty(target)...)
			}
		}
	}
	for _, pattern := range hiddenHome {
		found, _ := filepath.Glob(filepath.Join(home, pattern)) // the patterns are well formed
		for _, path := range found {
			list = append(list, wall.Mount{Kind: wall.Hidden, To: path})
		}
	}
	return list
}

// closedEtc plans to hide what is below etc and not for everybody: no program
// of an ordinary user needs it, and root may read it without any capability.
func closedEtc(etc string, hidden []wall.Mount) []wall.Mount {
	var list []wall.Mount
	_ = filepath.WalkDir(etc, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == etc || e.Type()&(fs.ModeSymlink|fs.ModeDevice) != 0 {
			return nil // what cannot be read here cannot be read inside
		}
		to := "/etc" + strings.TrimPrefix(path, etc)
		covered := slices.ContainsFunc(hidden, func(m wall.Mount) bool { return m.To == to })
		need := fs.FileMode(0o004)
		if e.IsDir() {
			need = 0o005
		}
		if info, err := e.Info(); !covered && err == nil && info.Mode()&need != need {
			list, covered = append(list, wall.Mount{Kind: wall.Hidden, To: to}), true
		}
		if covered && e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return list
}

// hostSockets plans to hide sockets of other programs in folders of the view:
// neither a mount that is read-only nor Landlock keeps anybody from connecting.
// That is those that are there when a box is made.
func hostSockets(hidden []wall.Mount, home string) []wall.Mount {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	var list []wall.Mount
	for text := range strings.Lines(string(data)) {
		at := strings.Index(text, " /")
		if at < 0 {
			continue
		}
		path := strings.TrimSuffix(text[at+1:], "\n")
		top, _, _ := strings.Cut(path[1:], "/")
		if filepath.Clean(path) != path || slices.Contains(ownTop, top) && (home == "" || !within(home, path)) {
			continue
		}
		covered := slices.ContainsFunc(hidden, func(m wall.Mount) bool { return m.Kind == wall.Hidden && within(m.To, path) })
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 && !covered {
			list = append(list, wall.Mount{Kind: wall.Hidden, To: path})
		}
	}
	return list
}

// hostMount is one line of the kernel's list of mounts.
type hostMount struct{ device, root, point string }

// hostMounts reads that list.
func hostMounts() []hostMount {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var list []hostMount
	for text := range strings.Lines(string(data)) {
		if f := strings.Fields(text); len(f) > 4 {
			list = append(list, hostMount{f[2], plain.Replace(f[3]), plain.Replace(f[4])})
		}
	}
	return list
}

// otherNames returns where else a path is in sight, because its file system is
// mounted twice.
func otherNames(mounts []hostMount, path string) []string {
	var own hostMount
	for _, m := range mounts {
		if within(m.point, path) && len(m.point) >= len(own.point) {
			own = m
		}
	}
	inside := filepath.Join(own.root, strings.TrimPrefix(path, own.point))
	var names []string
	for _, m := range mounts {
		if m.device != own.device || !within(m.root, inside) {
			continue
		}
		name := filepath.Join(m.point, strings.TrimPrefix(inside, m.root))
		if top, _, _ := strings.Cut(name[1:], "/"); name != path && !slices.Contains(ownTop, top) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// again plans to hide, under each other name, what the view has hidden or leaves out.
func again(hidden []wall.Mount, home string) []wall.Mount {
	mounts := hostMounts()
	var list []wall.Mount
	paths := []string{"/home", "/root", "/var", "/run"}
	if home != "" {
		paths = append(paths, home)
	}
	for _, m := range hidden {
		if m.Kind == wall.Hidden {
			paths = append(paths, m.To)
		}
	}
	for _, path := range paths {
		for _, name := range otherNames(mounts, path) {
			list = append(list, empty(name)...)
		}
	}
	return list
}
