package seatbelt

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"cofferdam/sandbox/hostview"
)

// What of a Mac is the same for everybody and holds no settings of anybody.
var systemRead = []string{
	"/System", "/usr", "/bin", "/sbin", "/opt", "/nix", "/Applications",
	"/Library/Apple", "/Library/Developer", "/Library/Fonts", "/Library/Frameworks", "/Library/Java", "/Library/Perl", "/Library/Python", "/Library/Ruby",
	"/private/etc", "/private/var/db/dyld", "/private/var/db/timezone", "/private/var/db/xcode_select_link", "/private/var/select",
}

// Links at the top, and the top itself, which every program looks at.
var topLinks = []string{"/", "/etc", "/tmp", "/var"}

// etcFolders are where programs of a Mac keep the settings of all its users:
// what is hidden of /etc on Linux is hidden in each.
var etcFolders = []string{"/private/etc", "/opt/homebrew/etc", "/usr/local/etc"}

// hiddenTop is what services keep in folders that are read otherwise: databases,
// mail, sockets; and the other name of everything outside the system, home
// folders among it, which is below /System.
var hiddenTop = []string{"/System/Volumes/Data", "/System/Volumes/VM", "/opt/homebrew/var", "/usr/local/var", "/private/etc/master.passwd", "/private/etc/cups", "/private/etc/racoon"}

// hiddenHome are the entries of a home folder that have no dot on a Mac and hold
// keychains, cookies, mail and tokens. What else is there holds none by its name.
var hiddenHome = []string{"Library"}

// noPrograms may not be started: they change the user or run something later,
// outside. Most are set-user-id.
var noPrograms = []string{
	"/usr/bin/sudo", "/usr/bin/su", "/usr/bin/login", "/usr/bin/newgrp", "/usr/bin/at", "/usr/bin/atq", "/usr/bin/atrm", "/usr/bin/batch",
	"/usr/bin/crontab", "/usr/libexec/security_authtrampoline", "/bin/launchctl", "/usr/bin/open", "/usr/bin/osascript", "/usr/bin/security",
}

// devices are those of every program; a terminal is not among them, because who
// may ask a terminal for something may also type into it.
var (
	devices      = []string{"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"}
	writeDevices = []string{"/dev/null", "/dev/zero", "/dev/fd", "/dev/stdout", "/dev/stderr"}
)

// services are those that answer questions about users, folders and changes of
// the time zone. No other can be looked up: not the keychain, not the one that
// starts programs, not the one that verifies certificates and asks the network.
var services = []string{
	"com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership", "com.apple.bsd.dirhelper", "com.apple.system.notification_center",
}

// kernelNames are what a program may ask the kernel about the machine. Whole
// groups would hold the arguments and variables of other programs.
var (
	kernelNames = []string{
		"kern.argmax", "kern.boottime", "kern.clockrate", "kern.hostname", "kern.maxfiles", "kern.maxfilesperproc", "kern.maxproc", "kern.memorystatus_level",
		"kern.ngroups", "kern.osproductversion", "kern.osrelease", "kern.ostype", "kern.osversion", "kern.osvariant_status", "kern.secure_kernel", "kern.usrstack64",
		"kern.version", "sysctl.proc_cputype", "vm.loadavg", "vm.pagesize", "vm.swapusage",
	}
	kernelPrefixes = []string{"hw.", "machdep.cpu."}
)

// Host says what of this machine a command may read besides the system, and what
// in all that it may not. home, without links, may be "".
func Host(home string) (read, hidden []string) {
	if home != "" {
		seen := hostview.OfHome(home)
		for _, path := range seen.Shown {
			if !slices.Contains(hiddenHome, filepath.Base(path)) || filepath.Dir(path) != home {
				read = append(read, path)
			}
		}
		for path := range seen.Links {
			read = append(read, path) // the link itself: where it leads is judged by its own name
		}
		hidden = slices.Concat(seen.Linked, seen.Hidden)
	}
	for _, path := range hostview.ClosedEtc("/private/etc", nil) {
		hidden = append(hidden, "/private"+path)
	}
	slices.Sort(read)
	slices.Sort(hidden)
	return read, slices.Compact(hidden)
}

// etcRules are regular expressions for what is hidden in a folder of settings,
// also of files that are not there yet.
func etcRules(dir string) (all []string) {
	for _, pattern := range hostview.EtcPatterns() {
		name := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `[^/]*`)
		all = append(all, "^"+regexp.QuoteMeta(dir)+"/"+name+"($|/)")
	}
	return all
}
