package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam/sandbox/wall"
)

// What of the host a view of it does not show. Everything else is read-only.
var (
	// ownTop are folders at the top that a box has of its own.
	ownTop = []string{"proc", "sys", "dev", "tmp", "run", "home", "root", "var", "lost+found", "boot"}

	// shownVar are the parts of /var that are data of installed programs. The
	// rest is what services keep: mail, data bases, sockets, backups, logs.
	shownVar = []string{"lib/dpkg", "lib/rpm", "lib/alternatives", "lib/pacman", "cache/fontconfig", "cache/ldconfig"}

	// hiddenEtc are files and folders of /etc that hold keys, passwords or who
	// may become whom. Patterns; what is not there needs nothing.
	hiddenEtc = []string{
		"shadow*", "gshadow*", "passwd-", "group-", "subuid-", "subgid-", "security/opasswd", "sudoers*", "doas.conf", "polkit-1",
		"ssh/ssh_host_*", "ssl/private", "pki/tls/private", "pki/private", "letsencrypt", "krb5.keytab", "ipsec*", "swanctl", "openvpn", "wireguard",
		"ppp", "NetworkManager", "netplan", "wpa_supplicant", "iwd", "fstab.d", "crypttab", "luks*", "credstore*", "machine-id",
		"docker", "containers", "containerd", "kubernetes", "rancher", "cni", "etcd", "consul.d", "vault.d", "nomad.d", "cloud", "amazon",
		"google*", "azure*", "aws*", "boto.cfg", "npmrc", "pip.conf", "gitconfig", "netrc", "wgetrc", "curlrc", "apt/auth.conf*", "apt/apt.conf.d/*proxy*",
		"yum.repos.d", "dnf", "zypp/credentials*", "mysql/debian.cnf", "postgresql", "redis", "mongod.conf", "rabbitmq", "grafana", "exim4", "postfix",
		"msmtprc", "mail", "sasl*", "samba", "cifs*", "ldap*", "openldap", "sssd", "freeradius", "bind", "rndc.key", "cups", "cron*", "at.deny", "ansible",
		"puppet*", "chef", "salt", "jenkins", "gitlab*", "codex", "claude-code", "cursor", "opencode", "cofferdam", "environment", "profile.d/*token*", "nix/*key*",
	}

	// shownDots are the entries of a home folder that begin with a dot and stay
	// readable: programs, not settings, and no place where tokens are kept.
	shownDots = []string{
		".cargo/bin", ".rustup", ".nvm", ".fnm", ".volta/bin", ".volta/tools", ".bun/bin", ".deno/bin", ".pyenv", ".rbenv", ".rvm", ".sdkman", ".asdf",
		".local/bin", ".local/lib", ".local/share/mise", ".local/share/uv", ".local/share/pnpm", ".npm-global", ".nix-profile", ".terminfo", ".inputrc",
	}
)

// view plans all of the host, read-only, without credentials: every name that
// is not known to be harmless in a home folder, in /var and in /run is absent,
// so that what appears there later stays absent too. The home folder itself is memory, as given.
func view(home wall.Mount, show []string) ([]wall.Mount, error) {
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
	hidden, err := secretEtc("/etc")
	if err != nil {
		return nil, err
	}
	hidden = append(hidden, closedEtc("/etc", hidden)...)
	list = append(append(list, hidden...), again(hidden, home.To)...)
	if home.To != "" {
		list = append(append(list, home), homeView(home.To, show)...)
		list = append(list, elsewhere(home.To)...)
	}
	return append(list, hostSockets(list, home.To)...), nil
}

// homeView plans the entries of a home folder that may be seen.
func homeView(home string, show []string) []wall.Mount {
	var list []wall.Mount
	bind := func(path string) {
		list = append(list, wall.Mount{Kind: wall.Bind, To: path, From: path, Optional: true})
	}
	entries, err := os.ReadDir(home)
	if err != nil { // nothing of it can be seen inside either
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(home, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.Type()&os.ModeSymlink != 0:
			if target, err := os.Readlink(path); err == nil {
				list = append(list, wall.Mount{Kind: wall.Link, To: path, From: target})
			}
		case e.IsDir() || e.Type().IsRegular():
			bind(path)
		}
	}
	for _, name := range shownDots {
		path := filepath.Join(home, name)
		if info, err := os.Lstat(path); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			bind(path)
		}
	}
	for _, path := range show {
		bind(path)
	}
	return list
}

// secretEtc plans to hide what hiddenEtc names below etc.
func secretEtc(etc string) ([]wall.Mount, error) {
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
	var list []wall.Mount
	// A link hides what it leads to.
	hide := func(path string) { list = append(list, wall.Mount{Kind: wall.Hidden, To: path}) }
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
