package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam/sandbox"
	"cofferdam/sandbox/wall"
)

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

// hostSockets plans to hide sockets of other programs in folders of the view:
// neither a mount that is read-only nor Landlock keeps anybody from connecting.
// That is those that are there when a box is made; in the folders that they are
// in, also those that are made later, as a service does that starts again.
func hostSockets(planned []wall.Mount, home string, mounts []hostMount) []wall.Mount {
	var list []wall.Mount
	for _, path := range socketNames() {
		if !isSocket(path) {
			continue
		}
		top, _, _ := strings.Cut(path[1:], "/")
		if slices.Contains(ownTop, top) && (home == "" || !sandbox.Within(home, path)) {
			continue
		}
		if !slices.ContainsFunc(planned, func(m wall.Mount) bool { return m.Kind == wall.Hidden && sandbox.Within(m.To, path) }) {
			list = append(list, wall.Mount{Kind: wall.Hidden, To: path})
		}
	}
	return append(deafen(list, planned, mounts), list...)
}

// socketsIn plans to hide those of other programs in folders that are bound over
// the view, and with it over what is hidden there: a workspace has them too, such
// as one that takes commands for what runs there. The kernel does not say what a
// relative name is relative to: the folder and its repository are tried.
func socketsIn(folders []string) (list []wall.Mount) {
	names := socketNames()
	for _, folder := range folders {
		for _, name := range names {
			paths := []string{name}
			if !filepath.IsAbs(name) {
				paths = []string{filepath.Join(folder, name), filepath.Join(folder, ".git", name)}
			}
			for _, path := range paths {
				if sandbox.Within(folder, path) && isSocket(path) {
					list = append(list, wall.Mount{Kind: wall.Hidden, To: path})
				}
			}
		}
	}
	return list
}

// socketNames returns the names that sockets of this machine have in its file
// system, as who made them said them.
func socketNames() (list []string) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	for text := range strings.Lines(string(data)) {
		name := strings.TrimSuffix(text, "\n")
		for range 7 { // numbers and states stand before it
			_, name, _ = strings.Cut(strings.TrimLeft(name, " "), " ")
		}
		if name != "" && name[0] != '@' {
			list = append(list, name)
		}
	}
	return list
}

// isSocket says whether a path, clean and absolute, is that of a socket.
func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0 && filepath.IsAbs(path) && filepath.Clean(path) == path
}

// maxDeaf bounds the folders of sockets: each is a file system of its own.
const maxDeaf = 16

// deafen plans to make the folders of sockets deaf. Not one that has another
// mount below it, of the host or of the plan: what that hides would be in sight.
func deafen(sockets, planned []wall.Mount, mounts []hostMount) []wall.Mount {
	if len(sockets) == 0 {
		return nil
	}
	taken := slices.Clone(planned)
	for _, m := range mounts {
		taken = append(taken, wall.Mount{To: m.point})
	}
	var list []wall.Mount
	for _, s := range sockets {
		dir := filepath.Dir(s.To)
		parted := slices.ContainsFunc(taken, func(m wall.Mount) bool { return m.To != dir && sandbox.Within(dir, m.To) })
		if made := slices.ContainsFunc(list, func(m wall.Mount) bool { return sandbox.Within(m.To, dir) || sandbox.Within(dir, m.To) }); !parted && !made && len(list) < maxDeaf {
			list = append(list, wall.Mount{Kind: wall.Deaf, To: dir})
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
		if sandbox.Within(m.point, path) && len(m.point) >= len(own.point) {
			own = m
		}
	}
	inside := filepath.Join(own.root, strings.TrimPrefix(path, own.point))
	var names []string
	for _, m := range mounts {
		if m.device != own.device || !sandbox.Within(m.root, inside) {
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
func again(hidden []wall.Mount, home string, mounts []hostMount) []wall.Mount {
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
