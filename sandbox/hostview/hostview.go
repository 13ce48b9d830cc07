// Package hostview knows what of a host a command may see whatever it is enclosed
// by: which entries of a home folder are programs and not credentials, and what
// of /etc is nobody's business. The walls of Linux and of a Mac have one list.
//
// It only looks and names paths; it hides nothing itself. The invariant: of a
// home folder, an entry whose name begins with a dot is named only if it is
// known to hold programs.
package hostview

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hiddenEtc are files and folders of /etc that hold keys, passwords or who
// may become whom. Patterns; what is not there needs nothing.
var hiddenEtc = []string{
	"shadow*", "gshadow*", "passwd-", "group-", "subuid-", "subgid-", "security/opasswd", "sudoers*", "doas.conf", "polkit-1",
	"ssh/ssh_host_*", "ssl/private", "pki/tls/private", "pki/private", "letsencrypt", "krb5.keytab", "ipsec*", "swanctl", "openvpn", "wireguard",
	"ppp", "NetworkManager", "netplan", "wpa_supplicant", "iwd", "fstab.d", "crypttab", "luks*", "credstore*", "machine-id",
	"docker", "containers", "containerd", "kubernetes", "rancher", "cni", "etcd", "consul.d", "vault.d", "nomad.d", "cloud", "amazon",
	"google*", "azure*", "aws*", "boto.cfg", "npmrc", "pip.conf", "gitconfig", "netrc", "wgetrc", "curlrc", "apt/auth.conf*", "apt/apt.conf.d/*proxy*",
	"yum.repos.d", "dnf", "zypp/credentials*", "mysql/debian.cnf", "postgresql", "redis", "mongod.conf", "rabbitmq", "grafana", "exim4", "postfix",
	"msmtprc", "mail", "sasl*", "samba", "cifs*", "ldap*", "openldap", "sssd", "freeradius", "bind", "rndc.key", "cups", "cron*", "at.deny", "ansible",
	"puppet*", "chef", "salt", "jenkins", "gitlab*", "codex", "claude-code", "cursor", "opencode", "cofferdam", "environment", "profile.d/*token*", "nix/*key*",
}

// Dots are the entries of a home folder that begin with a dot and stay
// readable: programs, not settings, and no place where tokens are kept.
var Dots = []string{
	".cargo/bin", ".rustup", ".nvm", ".fnm", ".volta/bin", ".volta/tools", ".bun/bin", ".deno/bin", ".pyenv", ".rbenv", ".rvm", ".sdkman", ".asdf",
	".local/bin", ".local/lib", ".local/share/mise", ".local/share/uv", ".local/share/pnpm", ".npm-global", ".nix-profile", ".terminfo", ".inputrc",
}

// hiddenHome are patterns of what holds credentials though its name does not say
// so: beside programs that are shown, and of programs that keep no dot.
var hiddenHome = []string{
	"snap", ".local/share/uv/credentials", ".npm-global/etc", ".nvm/versions/node/*/etc", ".volta/tools/image/node/*/etc", ".asdf/installs/nodejs/*/etc",
	".local/share/mise/installs/node/*/etc", ".pyenv/versions/*/pip.conf",
}

// Home is what of a home folder may be seen.
type Home struct {
	Shown  []string          // absolute paths of files and folders
	Links  map[string]string // absolute path of a link that may be seen, and what it says
	Linked []string          // absolute paths in what is shown that links with a dot lead to: other names of credentials
	Hidden []string          // absolute paths that hold credentials though they are in what is shown
}

// OfHome looks at a home folder. Of one that cannot be read nothing is shown.
func OfHome(home string) Home {
	h := Home{Links: map[string]string{}}
	entries, err := os.ReadDir(home)
	if err != nil {
		return h
	}
	for _, e := range entries {
		path := filepath.Join(home, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.Type()&os.ModeSymlink != 0:
			if target, err := os.Readlink(path); err == nil {
				h.Links[path] = target
			}
		case e.IsDir() || e.Type().IsRegular():
			h.Shown = append(h.Shown, path)
		}
	}
	for _, name := range Dots {
		path := filepath.Join(home, name)
		if info, err := os.Lstat(path); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			h.Shown = append(h.Shown, path)
		}
	}
	h.Linked = linked(home)
	for _, pattern := range hiddenHome {
		found, _ := filepath.Glob(filepath.Join(home, pattern)) // the patterns are well formed
		h.Hidden = append(h.Hidden, found...)
	}
	return h
}

// linked returns where links with a dot lead to in a home folder, as those who
// keep their settings in a repository have them: other names of what is hidden.
func linked(home string) (list []string) {
	for _, dir := range []string{"", ".config", ".ssh", ".aws", ".gnupg", ".docker", ".kube"} {
		entries, err := os.ReadDir(filepath.Join(home, dir))
		if err != nil { // nothing of it can be seen inside either
			continue
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			shown := slices.ContainsFunc(Dots, func(d string) bool { return within(name, d) })
			if !strings.HasPrefix(name, ".") || e.Type()&os.ModeSymlink == 0 || shown {
				continue
			}
			target, err := filepath.EvalSymlinks(filepath.Join(home, name))
			if err == nil && within(home, target) && target != home && !strings.HasPrefix(target[len(home)+1:], ".") {
				list = append(list, target)
			}
		}
	}
	return list
}

// EtcPatterns are what is hidden of /etc by name, relative to it: a * stands
// for any text without a slash.
func EtcPatterns() []string { return slices.Clone(hiddenEtc) }

// SecretEtc returns what hiddenEtc names of what is in the folder etc, which a
// command sees as /etc.
func SecretEtc(etc string) ([]string, error) {
	entries, err := os.ReadDir(etc)
	if err != nil {
		return nil, err
	}
	exact := map[string]bool{}
	var prefixes, deeper []string
	for _, pattern := range hiddenEtc {
		switch prefix, tail, star := strings.Cut(pattern, "*"); {
		case strings.Contains(pattern, "/"):
			deeper = append(deeper, pattern)
		case star && tail == "":
			prefixes = append(prefixes, prefix)
		default:
			exact[pattern] = true
		}
	}
	var list []string
	// A link hides what it leads to.
	hide := func(path string) { list = append(list, path) }
	for _, e := range entries {
		if exact[e.Name()] || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.Name(), p) }) {
			hide("/etc/" + e.Name())
		}
	}
	for _, pattern := range deeper {
		found := []string{filepath.Join(etc, pattern)}
		if strings.Contains(pattern, "*") {
			if found, err = filepath.Glob(found[0]); err != nil {
				return nil, err
			}
		}
		for _, path := range found {
			if _, err := os.Lstat(path); err == nil {
				hide("/etc" + strings.TrimPrefix(path, etc))
			}
		}
	}
	return list, nil
}

// ClosedEtc returns what is below etc and not for everybody, less hidden: no program
// of an ordinary user needs it, and root may read it without any capability.
func ClosedEtc(etc string, hidden []string) []string {
	w := walk{etc: etc, hidden: hidden}
	w.below("", unix.AT_FDCWD)
	return w.closed
}

func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
