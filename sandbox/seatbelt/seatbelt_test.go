package seatbelt_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox/seatbelt"
)

var update = flag.Bool("update", false, "write the golden files anew")

// box is one of a person with a project.
func box() seatbelt.Box {
	return seatbelt.Box{
		Writable: []string{"/Users/ada/src/shop"}, Temp: "/private/tmp/cofferdam-1", Port: 49200,
		Read:   []string{"/Users/ada/src", "/Users/ada/notes", "/Users/ada/dotfiles", "/Users/ada/.cargo/bin"},
		Hidden: []string{"/Users/ada/dotfiles/ssh", "/private/etc/closed", "/Users/ada/.local/state/cofferdam/keys"},
	}
}

func profile(t *testing.T, b seatbelt.Box) seatbelt.Profile {
	t.Helper()
	p, err := b.Profile()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The profile of a box, as sandbox-exec gets it, is the one in testdata.
func TestGolden(t *testing.T) {
	offline := box()
	offline.Port = 0
	odd := box()
	odd.Writable = []string{`/Users/ada/a "b" (c) #"d` + `\e ; ü漢`}
	for name, b := range map[string]seatbelt.Box{"proxy": box(), "offline": offline, "odd": odd} {
		p := profile(t, b)
		got := p.Text + "\n" + strings.Join(p.Params, "\n") + "\n"
		file := filepath.Join("testdata", name+".sb")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs; if it should, run the test with -update and read the difference", file)
		}
	}
}

// access is something that a command tries.
type access struct{ operation, object string }

// attacks are what no command may do, and twins what one must be able to.
var (
	attacks = []access{
		{"file-read-data", "/Users/ada/.ssh/id_ed25519"},
		{"file-read-data", "/Users/ada/.aws/credentials"},
		{"file-read-data", "/Users/ada/.netrc"},
		{"file-read-data", "/Users/ada/Library/Keychains/login.keychain-db"},
		{"file-read-data", "/Library/Keychains/System.keychain"},
		{"file-read-data", "/Users/ada/.cargo/credentials.toml"},
		{"file-read-data", "/Users/ada/dotfiles/ssh/id"},
		{"file-read-metadata", "/Users/ada/dotfiles/ssh/id"},
		{"file-read-data", "/Users/ada/.local/state/cofferdam/keys/trace"},
		{"file-read-data", "/Users/eve/notes"},
		{"file-read-data", "/System/Volumes/Data/Users/ada/.ssh/id_ed25519"},
		{"file-read-metadata", "/System/Volumes/Data/Users/eve/notes"},
		{"file-read-data", "/System/Volumes/VM/sleepimage"},
		{"file-read-data", "/Users/ada"},
		{"file-read-data", "/Volumes/Backup/x"},
		{"file-read-data", "/private/etc/master.passwd"},
		{"file-read-data", "/private/etc/sudoers"},
		{"file-read-data", "/private/etc/sudoers.d/ada"},
		{"file-read-data", "/private/etc/closed"},
		{"file-read-data", "/private/etc/ssh/ssh_host_rsa_key"},
		{"file-read-data", "/opt/homebrew/etc/npmrc"},
		{"file-read-data", "/usr/local/etc/openvpn/key"},
		{"file-read-data", "/opt/homebrew/var/postgres/x"},
		{"file-read-data", "/private/var/db/dslocal/nodes/Default/users/ada.plist"},
		{"file-read-data", "/private/tmp/other"},
		{"file-read-data", "/dev/ttys001"},
		{"file-ioctl", "/dev/ttys001"},
		{"file-write-data", "/dev/ttys001"},
		{"file-write-create", "/Users/ada/.zshrc"},
		{"file-write-data", "/Users/ada/src/other/x"},
		{"file-write-create", "/Users/ada/src/shop-evil/x"},
		{"file-write-data", "/usr/local/bin/x"},
		{"file-write-data", "/private/etc/hosts"},
		{"file-write-create", "/Users/ada/Library/LaunchAgents/x.plist"},
		{"file-write-unlink", "/Users/ada/src/shop"},
		{"file-write-create", "/Users/ada/src/shop"},
		{"file-write-setugid", "/Users/ada/src/shop/x"},
		{"file-link", "/Users/ada/notes"},
		{"process-exec", "/usr/bin/sudo"},
		{"process-exec", "/usr/bin/crontab"},
		{"process-exec", "/bin/launchctl"},
		{"process-exec", "/Users/ada/.config/x"},
		{"network-outbound", "localhost:22"},
		{"network-outbound", "localhost:49201"},
		{"network-outbound", "*:443"},
		{"network-outbound", "/private/var/run/mDNSResponder"},
		{"network-bind", "localhost:49200"},
		{"network-inbound", "localhost:80"},
		{"mach-lookup", "com.apple.SecurityServer"},
		{"mach-lookup", "com.apple.trustd.agent"},
		{"mach-lookup", "com.apple.coreservices.launchservicesd"},
		{"mach-lookup", "com.apple.pasteboard.1"},
		{"mach-lookup", "com.apple.mDNSResponder"},
		{"sysctl-read", "kern.procargs2"},
		{"sysctl-read", "kern.proc.all"},
		{"sysctl-write", "kern.maxproc"},
		{"signal", "others"},
		{"process-info-pidinfo", "others"},
		{"mach-priv-task-port", "same-sandbox"},
		{"ipc-posix-sem", "/other"},
		{"ipc-posix-shm-write-data", "apple.shm.notification_center"},
		{"iokit-open", "IOUserClient"},
		{"user-preference-read", "com.apple.Safari"},
		{"appleevent-send", "com.apple.Terminal"},
		{"job-creation", ""},
		{"system-fsctl", ""},
	}
	twins = []access{
		{"file-read-data", "/System/Volumes/Preboot/Cryptexes/OS/System/Library/dyld/x"},
		{"file-read-data", "/Users/ada/src/shop/main.go"},
		{"file-write-create", "/Users/ada/src/shop/main.go"},
		{"file-write-unlink", "/Users/ada/src/shop/old"},
		{"file-write-mode", "/Users/ada/src/shop/x"},
		{"process-exec", "/Users/ada/src/shop/build/x"},
		{"file-read-data", "/Users/ada/src/other/x"},
		{"file-read-data", "/Users/ada/notes"},
		{"process-exec", "/Users/ada/.cargo/bin/cargo"},
		{"file-read-data", "/Users/ada/dotfiles/README"},
		{"file-write-create", "/private/tmp/cofferdam-1/x"},
		{"process-exec", "/private/tmp/cofferdam-1/go-build/x.test"},
		{"file-read-metadata", "/Users/ada"},
		{"file-read-metadata", "/private/var/db"},
		{"file-read-data", "/"},
		{"file-read-metadata", "/tmp"},
		{"process-exec", "/bin/sh"},
		{"process-exec", "/usr/bin/make"},
		{"file-map-executable", "/usr/lib/libSystem.B.dylib"},
		{"process-exec", "/opt/homebrew/bin/git"},
		{"file-read-data", "/private/etc/hosts"},
		{"file-read-data", "/private/etc/ssl/cert.pem"},
		{"file-read-data", "/private/var/db/timezone/zoneinfo/UTC"},
		{"file-read-data", "/dev/urandom"},
		{"file-write-data", "/dev/null"},
		{"network-outbound", "localhost:49200"},
		{"mach-lookup", "com.apple.system.opendirectoryd.libinfo"},
		{"sysctl-read", "hw.ncpu"},
		{"sysctl-read", "kern.osversion"},
		{"signal", "same-sandbox"},
		{"process-info-pidinfo", "same-sandbox"},
		{"process-fork", ""},
		{"ipc-posix-sem", "/mp-x1"},
		{"ipc-posix-shm-read-data", "apple.shm.notification_center"},
	}
)

// Every attack is refused, every twin passes; and the control, a profile that
// allows everything, lets every attack pass.
func TestProfileJudges(t *testing.T) {
	p := profile(t, box())
	all, open := rules(t, p.Text), rules(t, "(version 1)\n(allow default)\n")
	for _, a := range attacks {
		if judge(t, all, params(p), a.operation, a.object) {
			t.Errorf("allowed: %s %s", a.operation, a.object)
		}
		if !judge(t, open, nil, a.operation, a.object) {
			t.Errorf("the control refuses %s %s", a.operation, a.object)
		}
	}
	for _, a := range twins {
		if !judge(t, all, params(p), a.operation, a.object) {
			t.Errorf("refused: %s %s", a.operation, a.object)
		}
	}
	offline := box()
	offline.Port = 0
	p = profile(t, offline)
	if judge(t, rules(t, p.Text), params(p), "network-outbound", "localhost:49200") {
		t.Error("a box without a proxy has a network")
	}
}

// No rule is there for nothing: without any one of them an attack passes or a
// twin does not.
func TestEveryRuleCounts(t *testing.T) {
	p := profile(t, box())
	all := rules(t, p.Text)
	for i, r := range all {
		less := slices.Delete(slices.Clone(all), i, i+1)
		if i == 0 { // the first denies what nobody allows: an evaluator's default is no rule
			if r.allow || !slices.Equal(r.operations, []string{"default"}) || r.filters != nil {
				t.Errorf("the first rule is %+v", r)
			}
			continue
		}
		if !slices.ContainsFunc(attacks, func(a access) bool { return judge(t, less, params(p), a.operation, a.object) }) &&
			!slices.ContainsFunc(twins, func(a access) bool { return !judge(t, less, params(p), a.operation, a.object) }) {
			t.Errorf("nothing changes without %+v", r)
		}
	}
}

// Nothing in a path becomes a rule: it is no part of the text.
func TestPathsAreNoRules(t *testing.T) {
	evil := `/Users/ada/x") (allow default) ("`
	b := box()
	b.Writable = []string{evil}
	p := profile(t, b)
	all := rules(t, p.Text)
	if judge(t, all, params(p), "file-read-data", "/Users/ada/.ssh/id_ed25519") || strings.Contains(p.Text, "evil") || strings.Contains(p.Text, "/Users/ada") {
		t.Error("a path is in the text of the profile")
	}
	if !judge(t, all, params(p), "file-write-create", evil+"/y") {
		t.Error("the workspace cannot be written")
	}
	args := p.Args([]string{"-D", "x"})
	at := slices.Index(args, "--")
	if !slices.Contains(args[:at], "P0="+b.Read[0]) || !slices.Equal(args[at:], []string{"--", "-D", "x"}) {
		t.Errorf("%q", args)
	}
}

func TestPathsThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*seatbelt.Box){
		"newline":       func(b *seatbelt.Box) { b.Writable = []string{"/Users/ada/a\nb"} },
		"zero":          func(b *seatbelt.Box) { b.Temp = "/private/tmp/a\x00b" },
		"escape":        func(b *seatbelt.Box) { b.Read = []string{"/Users/ada/\x1b[2J"} },
		"control in c1": func(b *seatbelt.Box) { b.Hidden = []string{"/Users/ada/\u0085"} },
		"no UTF-8":      func(b *seatbelt.Box) { b.Read = []string{"/Users/ada/\xff"} },
		"relative":      func(b *seatbelt.Box) { b.Writable = []string{"src"} },
		"dots":          func(b *seatbelt.Box) { b.Writable = []string{"/Users/ada/../eve"} },
		"top":           func(b *seatbelt.Box) { b.Read = []string{"/"} },
		"no temp":       func(b *seatbelt.Box) { b.Temp = "" },
		"system":        func(b *seatbelt.Box) { b.Writable = []string{"/usr/local/x"} },
		"above system":  func(b *seatbelt.Box) { b.Writable = []string{"/private"} },
		"device":        func(b *seatbelt.Box) { b.Writable = []string{"/dev/x"} },
		"long":          func(b *seatbelt.Box) { b.Read = []string{"/" + strings.Repeat("x", 1024)} },
		"many":          func(b *seatbelt.Box) { b.Read = slices.Repeat([]string{"/Users/ada/x"}, seatbelt.MaxPaths+1) },
	} {
		b := box()
		change(&b)
		if p, err := b.Profile(); cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "" || p.Text != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What of a home folder is read is what the Linux view shows, less Library.
func TestHost(t *testing.T) {
	home := t.TempDir()
	for _, dir := range []string{"src", "Library/Keychains", ".ssh", ".cargo/bin", "dotfiles/ssh", "snap"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("dotfiles/ssh", filepath.Join(home, ".gnupg")); err != nil {
		t.Fatal(err)
	}
	read, hidden := seatbelt.Host(home)
	for i := range read {
		read[i] = strings.TrimPrefix(read[i], home+"/")
	}
	if want := []string{".cargo/bin", "dotfiles", "snap", "src"}; !slices.Equal(read, want) {
		t.Errorf("read %q, want %q", read, want)
	}
	for _, want := range []string{"dotfiles/ssh", "snap"} {
		if !slices.Contains(hidden, filepath.Join(home, want)) {
			t.Errorf("%s is not hidden", want)
		}
	}
	if read, _ := seatbelt.Host(""); len(read) != 0 {
		t.Errorf("without a home folder: %q", read)
	}
}
