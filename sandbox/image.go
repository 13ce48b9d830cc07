package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// etcNames are the entries of the host's /etc that boxes of HostImage see: what
// programs of /usr need to run, and nothing that is apt to hold a secret (no
// npmrc, no pip.conf, no gitconfig, no apt, no shadow, no ssh).
var etcNames = []string{
	"alternatives", "bash.bashrc", "ca-certificates.conf", "debian_version", "fonts", "gai.conf", "host.conf", "inputrc",
	"issue", "ld-musl-*.path", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "lsb-release",
	"magic", "magic.mime", "mime.types", "netconfig", "networks", "os-release", "perl", "profile", "protocols", "python3",
	"python3.*", "rpc", "services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xattr.conf", "xdg",
	"java-*-openjdk", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies",
}

// HostPaths lists what boxes of HostImage see of the host besides /usr: what
// merges into it on most systems, and the allow-list of /etc. Absolute paths, of
// files, folders and links that are there.
func HostPaths() ([]string, error) {
	var list []string
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if _, err := os.Lstat(name); err == nil {
			list = append(list, name)
		}
	}
	for _, pattern := range etcNames {
		found, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// OwnFolders are the names at the top that no image gives: a box has its own.
func OwnFolders() []string {
	return []string{"proc", "sys", "dev", "tmp", "work", "env", "home", "run", "lost+found"}
}

// Resolver is /etc/resolv.conf of every box. Five tries of two seconds: a server
// that restarts is back by then.
const Resolver = "nameserver 10.99.0.1\noptions timeout:2 attempts:5\n"

// EtcFiles are the files of /etc that every box has: who there is, and where
// names are asked for.
func EtcFiles() []File {
	file := func(name, text string) File { return File{Path: "/etc/" + name, Data: []byte(text)} }
	return []File{
		file("passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"+
			fmt.Sprintf("agent:x:%d:%d:agent:%s:/bin/sh\n", UserID, UserID, HomeDir)+
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"),
		file("group", fmt.Sprintf("root:x:0:\ntty:x:5:\nagent:x:%d:\nnogroup:x:65534:\n", UserID)),
		file("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"),
		file("resolv.conf", Resolver),
	}
}

// checkImage refuses what cannot be the root of a box. state is the driver's own
// folder: no box may see it.
func checkImage(op, image, state string, view bool) error {
	hint := `give "host", or the absolute path of a folder that holds a whole root file system`
	if view {
		hint = `give "host", "host-view", or the absolute path of a folder that holds a whole root file system`
	}
	if image == HostImage || image == HostView && view {
		return nil
	}
	subject := fmt.Sprintf("image %.200q", image)
	if err := RealFolder(image); err != nil {
		return Refuse(op, subject, err.Error(), hint)
	}
	if Within(image, state) || Within(state, image) {
		return Refuse(op, subject, "holds the state of this installation", hint)
	}
	for _, shell := range []string{"bin/sh", "usr/bin/sh"} {
		if _, err := os.Lstat(filepath.Join(image, shell)); err == nil {
			return nil
		}
	}
	return Refuse(op, subject, "has no /bin/sh", hint)
}

// RealFolder wants a folder whose path has no link in it: one could be changed
// under the box.
func RealFolder(path string) error {
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
