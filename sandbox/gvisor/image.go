package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cofferdam"
	"cofferdam/sandbox"

	"golang.org/x/sys/unix"
)

// HostImage is the image made of an allow-list of the host.
const HostImage = "host"

// etcNames are the entries of the host's /etc that boxes see: what programs of
// /usr need to run, and nothing that is apt to hold a secret (no npmrc, no
// pip.conf, no gitconfig, no apt, no shadow, no ssh).
var etcNames = []string{
	"alternatives", "bash.bashrc", "ca-certificates.conf", "debian_version", "fonts", "gai.conf", "host.conf", "inputrc",
	"issue", "ld-musl-*.path", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "lsb-release",
	"magic", "magic.mime", "mime.types", "netconfig", "networks", "os-release", "perl", "profile", "protocols", "python3",
	"python3.*", "rpc", "services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xattr.conf", "xdg",
	"java-*-openjdk", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies",
}

// ownNames are what no image gives: the box's own folders, and files of /etc
// that we write.
var ownNames = []string{"proc", "sys", "dev", "tmp", "work", "env", "home", "run", "lost+found", programDir}

// programDir holds pid 1. It is not a name that an image has.
const programDir = ".cofferdam"

// Bounds of what is copied from an image into every box.
const (
	maxEtcFiles = 8192
	maxEtcBytes = 32 << 20
)

// bind is a folder or file of the host that a box sees read-only.
type bind struct{ from, to string }

// root is the root folder of one box while it is being filled.
type root struct {
	dir   string
	binds []bind
	files int
	bytes int64
}

// makeRoot fills dir with what a box of this image has at "/", and returns
// what is to be bound into it. Everything in dir belongs to this box alone, so
// that no mount point ever appears in the image itself.
func makeRoot(dir, image, hostname, initProgram string) ([]bind, error) {
	r := &root{dir: dir}
	for _, d := range []string{"proc", "sys", "dev", "tmp", "work", "env", "home/agent", "run", "etc", programDir} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Link(initProgram, filepath.Join(dir, programDir, "init")); err != nil {
		return nil, err
	}
	var err error
	if image == HostImage {
		err = r.fromHost()
	} else {
		err = r.fromFolder(image)
	}
	if err != nil {
		return nil, err
	}
	return r.binds, r.ownFiles(hostname)
}

// fromHost takes /usr, the links into it and the named files of /etc.
func (r *root) fromHost() error {
	r.binds = append(r.binds, bind{"/usr", "/usr"})
	if err := os.Mkdir(filepath.Join(r.dir, "usr"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		target, err := os.Readlink("/" + name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && strings.HasPrefix(strings.TrimPrefix(target, "/"), "usr/"):
			if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
				return err
			}
		default: // a host that has not merged /usr
			if err := os.Mkdir(filepath.Join(r.dir, name), 0o755); err != nil {
				return err
			}
			r.binds = append(r.binds, bind{"/" + name, "/" + name})
		}
	}
	for _, pattern := range etcNames {
		found, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			return err
		}
		for _, path := range found {
			if err := r.copy(path, path); err != nil {
				return fmt.Errorf("copying %s: %w", path, err)
			}
		}
	}
	return r.emptyVar()
}

// emptyVar makes a /var with nothing of the host's in it.
func (r *root) emptyVar() error {
	for _, d := range []string{"var/cache", "var/lib", "var/log", "var/spool"} {
		if err := os.MkdirAll(filepath.Join(r.dir, d), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Symlink("/tmp", filepath.Join(r.dir, "var/tmp")),
		os.Symlink("/run", filepath.Join(r.dir, "var/run")),
	)
}

// fromFolder takes a folder that holds a whole root file system.
func (r *root) fromFolder(image string) error {
	entries, err := os.ReadDir(image)
	if err != nil {
		return fmt.Errorf("reading image: %w", err)
	}
	for _, e := range entries {
		from, to := filepath.Join(image, e.Name()), "/"+e.Name()
		switch {
		case own(e.Name()):
		case e.Name() == "etc" && e.IsDir():
			err = r.copy(from, to)
		case e.IsDir():
			r.binds = append(r.binds, bind{from, to})
			err = os.Mkdir(filepath.Join(r.dir, to), 0o755)
		default:
			err = r.copy(from, to)
		}
		if err != nil {
			return fmt.Errorf("taking %s of image: %w", to, err)
		}
	}
	return nil
}

func own(name string) bool {
	for _, n := range ownNames {
		if n == name {
			return true
		}
	}
	return false
}

// copy puts a file, link or folder of an image into the box's own root. Links
// stay links and are never followed; what is neither file, link nor folder, or
// not readable by everybody, is left out.
func (r *root) copy(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, from)
		dst := filepath.Join(r.dir, to, rel)
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if r.files++; r.files > maxEtcFiles {
			return fmt.Errorf("more than %d entries", maxEtcFiles)
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			if mode&0o005 != 0o005 {
				return fs.SkipDir
			}
			if err := os.Mkdir(dst, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return nil
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, dst)
		case mode.IsRegular() && mode&0o004 != 0:
			return r.copyFile(path, dst, mode.Perm()&0o755)
		}
		return nil
	})
}

// copyFile copies the bytes of one file.
func (r *root) copyFile(from, to string, mode fs.FileMode) error {
	src, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(dst, io.LimitReader(src, maxEtcBytes-r.bytes+1))
	if r.bytes += n; err == nil && r.bytes > maxEtcBytes {
		err = fmt.Errorf("more than %d bytes", maxEtcBytes)
	}
	return errors.Join(err, dst.Close())
}

// ownFiles writes the files of /etc that say what a box is.
func (r *root) ownFiles(hostname string) error {
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" +
			fmt.Sprintf("agent:x:%d:%d:agent:%s:/bin/sh\n", sandbox.UserID, sandbox.UserID, sandbox.HomeDir) +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         fmt.Sprintf("root:x:0:\ntty:x:5:\nagent:x:%d:\nnogroup:x:65534:\n", sandbox.UserID),
		"hosts":         "127.0.0.1 localhost\n127.0.1.1 " + hostname + "\n",
		"hostname":      hostname + "\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
		// Five tries of two seconds: a server that restarts is back by then.
		"resolv.conf": "nameserver 10.99.0.1\noptions timeout:2 attempts:5\n",
	} {
		if err := r.write("/etc/"+name, []byte(text), 0o444); err != nil {
			return err
		}
	}
	return os.Symlink("/proc/self/mounts", r.replace("/etc/mtab"))
}

// write puts a file of ours into the root, in the place of what is there.
func (r *root) write(path string, data []byte, mode fs.FileMode) error {
	dst := r.replace(path)
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// replace makes room at path and returns where it is on the host.
func (r *root) replace(path string) string {
	dst := filepath.Join(r.dir, path)
	_ = os.RemoveAll(dst) // what is still there makes the following call fail
	return dst
}

// checkImage refuses what cannot be the root of a box. state is the driver's
// own folder: no box may see it.
func checkImage(image, state string) error {
	const hint = `give "host", or the absolute path of a folder that holds a whole root file system`
	if image == HostImage {
		return nil
	}
	if !filepath.IsAbs(image) || filepath.Clean(image) != image {
		return invalid("image "+image, "neither host nor an absolute path", hint)
	}
	resolved, err := filepath.EvalSymlinks(image)
	if err != nil {
		return &cofferdam.Error{Op: "gvisor.Create", Kind: cofferdam.NotFound, Subject: "image " + image,
			Reason: "no such folder", Hint: hint, Err: err}
	}
	if resolved != image {
		return invalid("image "+image, "a link, which may change under the box", "give the folder it leads to: "+resolved)
	}
	if within(image, state) || within(state, image) {
		return invalid("image "+image, "holds the state of this installation", hint)
	}
	for _, shell := range []string{"bin/sh", "usr/bin/sh"} {
		if _, err := os.Lstat(filepath.Join(image, shell)); err == nil {
			return nil
		}
	}
	return invalid("image "+image, "has no /bin/sh", hint)
}

// within says whether path is folder or lies in it.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
