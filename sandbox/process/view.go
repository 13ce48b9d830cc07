package process

import (
	"maps"
	"os"
	"slices"

	"cofferdam/sandbox"
	"cofferdam/sandbox/hostview"
	"cofferdam/sandbox/wall"
)

// What of the host a view of it does not show. Everything else is read-only.
var (
	// ownTop are folders at the top that a box has of its own.
	ownTop = []string{"proc", "sys", "dev", "tmp", "run", "home", "root", "var", "lost+found", "boot"}

	// shownVar are the parts of /var that are data of installed programs. The
	// rest is what services keep: mail, data bases, sockets, backups, logs.
	shownVar = []string{"lib/dpkg", "lib/rpm", "lib/alternatives", "lib/pacman", "cache/fontconfig", "cache/ldconfig"}
)

// view plans all of the host, read-only, without credentials: every name that
// is not known to be harmless in a home folder, in /var and in /run is absent,
// so that what appears there later stays absent too. The home folder itself is memory, as given.
func view(look *Look, home wall.Mount, show []string) ([]wall.Mount, error) {
	top, err := os.ReadDir("/")
	if err != nil {
		return nil, err
	}
	var list []wall.Mount
	for _, e := range top {
		name := "/" + e.Name()
		switch {
		case slices.Contains(ownTop, e.Name()):
		case e.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return nil, err
			}
			list = append(list, wall.Mount{Kind: wall.Link, To: name, From: target})
		case e.IsDir():
			list = append(list, wall.Mount{Kind: wall.Bind, To: name, From: name, Optional: true})
		}
	}
	for _, name := range shownVar {
		name = "/var/" + name
		if _, err := os.Stat(name); err == nil {
			list = append(list, wall.Mount{Kind: wall.Bind, To: name, From: name, Optional: true})
		}
	}
	list = append(list,
		wall.Mount{Kind: wall.Link, To: "/var/tmp", From: "/tmp"}, wall.Mount{Kind: wall.Link, To: "/var/run", From: "/run"},
		wall.Mount{Kind: wall.Bind, To: "/sys/devices/system", From: "/sys/devices/system", Optional: true})
	secret, mounts, err := look.seen()
	if err != nil {
		return nil, err
	}
	hidden := hide(secret)
	list = append(append(list, settings(hidden, mounts)...), append(hidden, again(hidden, home.To, mounts)...)...)
	if home.To != "" {
		list = append(append(list, home), homeView(home.To, show)...)
	}
	return append(list, hostSockets(list, home.To, mounts)...), nil
}

// settings plans that what of /etc is hidden stays so while its files are
// replaced. What the host has mounted in it is put there again, unless it is hidden.
func settings(hidden []wall.Mount, mounts []hostMount) []wall.Mount {
	const etc = "/etc"
	list := []wall.Mount{{Kind: wall.Deaf, To: etc}}
	for _, m := range mounts {
		inside := func(h wall.Mount) bool { return sandbox.Within(h.To, m.point) }
		if m.point != etc && sandbox.Within(etc, m.point) && !slices.ContainsFunc(hidden, inside) {
			list = append(list, wall.Mount{Kind: wall.Bind, To: m.point, From: m.point, Optional: true})
		}
	}
	return list
}

// homeView plans the entries of a home folder that may be seen.
func homeView(home string, show []string) []wall.Mount {
	var list []wall.Mount
	bind := func(path string) {
		list = append(list, wall.Mount{Kind: wall.Bind, To: path, From: path, Optional: true})
	}
	seen := hostview.OfHome(home)
	for _, path := range slices.Sorted(maps.Keys(seen.Links)) {
		list = append(list, wall.Mount{Kind: wall.Link, To: path, From: seen.Links[path]})
	}
	for _, path := range seen.Shown {
		bind(path)
	}
	for _, path := range show {
		bind(path)
	}
	for _, path := range seen.Linked {
		list = append(list, empty(path)...)
	}
	return append(list, hide(seen.Hidden)...)
}

// hide plans to hide paths.
func hide(paths []string) (list []wall.Mount) {
	for _, path := range paths {
		list = append(list, wall.Mount{Kind: wall.Hidden, To: path})
	}
	return list
}
