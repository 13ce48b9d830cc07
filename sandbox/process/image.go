package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam/sandbox"
	"cofferdam/sandbox/wall"
)

// maxEntries bounds what an image has at its top and in its /etc: each is a mount.
const maxEntries = 512

// ownFiles are the files of /etc that say what a box is.
func ownFiles(hostname string) []sandbox.File {
	return append(sandbox.EtcFiles(),
		sandbox.File{Path: "/etc/hosts", Data: []byte("127.0.0.1 localhost\n127.0.1.1 " + hostname + "\n")},
		sandbox.File{Path: "/etc/hostname", Data: []byte(hostname + "\n")})
}

// imageMounts plans what a box has from its image.
func imageMounts(image string) ([]wall.Mount, error) {
	switch image {
	case sandbox.HostImage:
		return hostImage()
	case sandbox.HostView:
		return view(LookAtHost(), wall.Mount{}, nil)
	}
	list, err := entries(image, "", append(sandbox.OwnFolders(), "etc"))
	if err != nil {
		return nil, err
	}
	own := []string{"mtab"}
	for _, f := range ownFiles("") {
		own = append(own, filepath.Base(f.Path))
	}
	etc, err := entries(image, "etc", own)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return append(list, etc...), nil
}

// entries plans what a folder of an image holds, but for names.
func entries(image, folder string, but []string) ([]wall.Mount, error) {
	found, err := os.ReadDir(filepath.Join(image, folder))
	if err != nil {
		return nil, err
	}
	if len(found) > maxEntries {
		return nil, fmt.Errorf("more than %d entries in /%s", maxEntries, folder)
	}
	var list []wall.Mount
	for _, e := range found {
		if !slices.Contains(but, e.Name()) {
			list = append(list, seen(filepath.Join(image, folder, e.Name()), filepath.Join("/", folder, e.Name()))...)
		}
	}
	return list, nil
}

// seen plans that a box sees one entry: a link stays one; what is neither link,
// folder nor file is left out.
func seen(from, to string) []wall.Mount {
	info, err := os.Lstat(from)
	if err != nil {
		return nil
	}
	switch mode := info.Mode(); {
	case mode&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return nil
		}
		return []wall.Mount{{Kind: wall.Link, To: to, From: target}}
	case mode.IsDir(), mode.IsRegular():
		return []wall.Mount{{Kind: wall.Bind, To: to, From: from, Optional: true}}
	}
	return nil
}

// opened plans the entries of a folder of /etc in the folder's place where it gets
// a file that is not there, such as the name of a certificate.
func opened(s sandbox.Spec, image []wall.Mount) ([]wall.Mount, error) {
	root := s.Image
	switch root {
	case sandbox.HostView: // no file can be made in a view
		return image, nil
	case sandbox.HostImage:
		root = "/"
	}
	for _, f := range s.Files {
		dir := filepath.Dir(f.Path)
		i := slices.IndexFunc(image, func(m wall.Mount) bool {
			return m.Kind == wall.Bind && m.To == dir && m.From == filepath.Join(root, dir) && sandbox.Within("/etc", dir)
		})
		if i < 0 {
			continue
		}
		if at, err := os.Lstat(filepath.Join(root, f.Path)); err == nil && at.Mode().IsRegular() {
			continue // it can be covered
		}
		inside, err := entries(root, dir[1:], nil)
		if err != nil {
			return nil, err
		}
		image = slices.Concat(image[:i], []wall.Mount{{Kind: wall.Dir, To: dir}}, inside, image[i+1:])
	}
	return image, nil
}

// hostImage plans the allow-list of the host.
func hostImage() ([]wall.Mount, error) {
	paths, err := sandbox.HostPaths()
	if err != nil {
		return nil, err
	}
	list := seen("/usr", "/usr")
	for _, path := range paths {
		list = append(list, seen(path, path)...)
	}
	for _, dir := range []string{"cache", "lib", "log", "spool"} {
		list = append(list, wall.Mount{Kind: wall.Dir, To: "/var/" + dir})
	}
	return append(list,
		wall.Mount{Kind: wall.Link, To: "/var/tmp", From: "/tmp"}, wall.Mount{Kind: wall.Link, To: "/var/run", From: "/run"},
		wall.Mount{Kind: wall.Bind, To: "/sys/devices/system", From: "/sys/devices/system", Optional: true}), nil
}

// plan is what the box is made of.
func (b *box) plan() (wall.Plan, error) {
	s := b.spec
	memory := func(to string, size int64, mode uint32, uid int) wall.Mount {
		return wall.Mount{Kind: wall.Memory, To: to, Size: size, Mode: mode, UID: uid}
	}
	p := wall.Plan{
		Hostname: s.Hostname, Joined: true, Keep: keptInBox, Files: max(s.Limits.OpenFiles, minInitFiles),
		Write: []string{sandbox.WorkDir, sandbox.HomeDir, "/tmp", "/run", "/dev/shm", "/dev/pts"},
	}
	image, err := imageMounts(s.Image)
	if err == nil {
		image, err = opened(s, image)
	}
	if err != nil {
		return p, invalid(opCreate, "image "+s.Image, err.Error(), "give a folder that holds a whole root file system")
	}
	p.Mounts = append([]wall.Mount{memory("/tmp", s.Limits.Temp, 0o1777, 0), memory("/run", runSize, 0o755, sandbox.UserID)}, image...)
	p.Mounts = append(p.Mounts,
		memory(sandbox.HomeDir, s.Limits.Temp, 0o700, sandbox.UserID), wall.Mount{Kind: wall.Dir, To: sandbox.EnvDir},
		wall.Mount{Kind: wall.Bind, To: sandbox.WorkDir, From: b.path("work"), Write: true},
		wall.Mount{Kind: wall.Hidden, To: b.d.o.Root},
		wall.Mount{Kind: wall.Process, To: "/proc"}, wall.Mount{Kind: wall.Devices, To: "/dev", Size: sandbox.SharedMemory(s.Limits)})
	var files []sandbox.File
	for _, f := range ownFiles(s.Hostname) {
		given := slices.ContainsFunc(s.Files, func(g sandbox.File) bool { return g.Path == f.Path })
		if _, err := os.Stat(f.Path); !given && (err == nil || s.Image != sandbox.HostView) { // no file can be made in a view
			files = append(files, f)
		}
	}
	if s.Image != sandbox.HostView {
		p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Link, To: "/etc/mtab", From: "/proc/self/mounts"})
	}
	for _, f := range append(files, s.Files...) {
		for _, m := range image {
			if m.Kind != wall.Bind || s.Image == sandbox.HostView || !sandbox.Within(m.To, f.Path) || m.To == f.Path {
				continue
			}
			// What is there can be covered, as the certificates are; a new file cannot be made.
			if at, err := os.Stat(filepath.Join(m.From, strings.TrimPrefix(f.Path, m.To))); err != nil || !at.Mode().IsRegular() {
				return p, invalid(opCreate, "file "+f.Path, "lies in a folder of the image", "put it under /etc or the home folder")
			}
		}
		p.Mounts = slices.DeleteFunc(p.Mounts, func(m wall.Mount) bool { return m.To == f.Path })
		addFile(&p, f)
	}
	p.Filter, err = filter()
	return p, err
}
