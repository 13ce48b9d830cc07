package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam"
)

// rules are those of a driver of one tier.
func rules(t Tier) Rules {
	return Rules{Driver: "test", Tiers: []Tier{t}, MinMemory: 32 << 20, MaxCPU: 64, State: "/var/lib/nothing", Closed: []string{"/closed"}}
}

func TestSpecIsCompleted(t *testing.T) {
	s := Spec{Image: HostImage}
	if err := s.Complete(rules(GVisor)); err != nil {
		t.Fatal(err)
	}
	if s.Tier != GVisor || s.Limits != DefaultLimits || s.Hostname != DefaultHostname {
		t.Errorf("%+v", s)
	}
	s = Spec{Image: HostImage, Limits: cofferdam.Limits{Memory: 64 << 20}}
	if err := s.Complete(rules(GVisor)); err != nil || s.Limits.Temp != 16<<20 || s.Limits.Disk != DefaultLimits.Disk {
		t.Errorf("little memory: %+v, %v", s.Limits, err)
	}
	s = Spec{Image: HostImage}
	r := rules(MicroVM)
	r.Tiers = append(r.Tiers, Emulated)
	if err := s.Complete(r); cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(cofferdam.HintOf(err), "microvm or microvm-emulated") {
		t.Errorf("no tier, where there are two: %v", err)
	}
}

// TestSpecCompleteRefuses has every kind of Spec that no box can have.
func TestSpecCompleteRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "image/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	image, file, link := filepath.Join(dir, "image"), filepath.Join(dir, "image/bin/sh"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(image, link); err != nil {
		t.Fatal(err)
	}
	some := SnapshotID("s-" + strings.Repeat("0", 32))
	files := func(list ...File) func(*Spec) { return func(s *Spec) { s.Files = list } }
	for name, change := range map[string]func(*Spec){
		"no image":                    func(s *Spec) { s.Image = "" },
		"relative image":              func(s *Spec) { s.Image = "image" },
		"image with dots":             func(s *Spec) { s.Image = dir + "/x/../image" },
		"image that is not there":     func(s *Spec) { s.Image = dir + "/none" },
		"image that is a file":        func(s *Spec) { s.Image = file },
		"image by a link":             func(s *Spec) { s.Image = link },
		"image without a shell":       func(s *Spec) { s.Image = dir },
		"image with the state":        func(s *Spec) { s.Image = "/" },
		"image with a zero byte":      func(s *Spec) { s.Image = "/\x00" },
		"view of the host":            func(s *Spec) { s.Image = HostView },
		"negative memory":             func(s *Spec) { s.Limits.Memory = -1 },
		"memory below the least":      func(s *Spec) { s.Limits.Memory = 32<<20 - 1 },
		"negative temp":               func(s *Spec) { s.Limits.Temp = -1 },
		"temp that overflows":         func(s *Spec) { s.Limits.Temp = 1<<63 - 1 },
		"temp that leaves no memory":  func(s *Spec) { s.Limits.Temp = 3 << 30 },
		"small disk":                  func(s *Spec) { s.Limits.Disk = 1 },
		"huge disk":                   func(s *Spec) { s.Limits.Disk = 1<<44 + 1 },
		"negative processors":         func(s *Spec) { s.Limits.CPU = -1 },
		"processors without number":   func(s *Spec) { s.Limits.CPU = 65 },
		"no processes":                func(s *Spec) { s.Limits.PIDs = 1 },
		"many processes":              func(s *Spec) { s.Limits.PIDs = 1 << 40 },
		"few open files":              func(s *Spec) { s.Limits.OpenFiles = 1 },
		"many open files":             func(s *Spec) { s.Limits.OpenFiles = 1 << 40 },
		"hostname with a newline":     func(s *Spec) { s.Hostname = "a\n" },
		"hostname with dots":          func(s *Spec) { s.Hostname = "a.b" },
		"long hostname":               func(s *Spec) { s.Hostname = strings.Repeat("a", 64) },
		"setup without environment":   func(s *Spec) { s.SetupPhase = true },
		"relative environment":        func(s *Spec) { s.Env = "env.img" },
		"environment with dots":       func(s *Spec) { s.Env = image + "/../x"; s.SetupPhase = true },
		"environment that is none":    func(s *Spec) { s.Env = dir + "/none" },
		"environment that is a link":  func(s *Spec) { s.Env = link },
		"environment that is a dir":   func(s *Spec) { s.Env = image },
		"snapshot with a path":        func(s *Spec) { s.Snapshot = "../../x" },
		"snapshot of upper case":      func(s *Spec) { s.Snapshot = SnapshotID("s-" + strings.Repeat("A", 32)) },
		"snapshot with a workspace":   func(s *Spec) { s.Snapshot, s.Workspace = some, "w-1" },
		"files without number":        func(s *Spec) { s.Files = make([]File, MaxFiles+1) },
		"files without end":           files(File{Path: "/etc/a", Data: make([]byte, MaxFileBytes)}, File{Path: "/etc/b", Data: []byte{0}}),
		"relative file":               files(File{Path: "etc/x"}),
		"file that climbs":            files(File{Path: "/etc/../work/x"}),
		"file with a slash":           files(File{Path: "/etc/x/"}),
		"file in place of all":        files(File{Path: "/"}),
		"two files of one name":       files(File{Path: "/etc/x"}, File{Path: "/etc/x"}),
		"file in the workspace":       files(File{Path: "/work/x"}),
		"file in place of /proc":      files(File{Path: "/proc"}),
		"file in the environment":     files(File{Path: "/env/x"}),
		"file over a program":         files(File{Path: "/usr/bin/sh"}),
		"file where the driver is":    files(File{Path: "/closed/x"}),
		"link that is relative":       files(File{Path: "/etc/x", Link: "y"}),
		"link that climbs":            files(File{Path: "/etc/x", Link: "/etc/../y"}),
		"link with bytes":             files(File{Path: "/etc/x", Link: "/y", Data: []byte{0}}),
		"link into what is not there": files(File{Path: "/etc/x", Link: "."}),
	} {
		s := Spec{Image: image}
		change(&s)
		if err := s.Complete(rules(GVisor)); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := Spec{Image: image, Files: []File{{Path: "/workshop", Data: make([]byte, MaxFileBytes)}, {Path: "/etc/x", Link: "/work"}}, Hostname: strings.Repeat("a", 63)}
	if err := good.Complete(rules(GVisor)); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

// An environment is a folder where the driver says so, and an image elsewhere.
func TestSpecEnvironmentIsAFolder(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env         string
		setup       bool
		folder, not string // what is refused of a driver of folders, and of another
	}{
		{dir, false, "", "not a file"},
		{dir, true, "", "not a file"},
		{file, false, "not a folder", ""},
		{link, false, "not a folder", "not a file"},
		{link, true, "not a folder", "not a file"},
		{dir + "/none", true, "", ""},
		{dir + "/none", false, "cannot be opened", "cannot be opened"},
		{dir + "/../x", true, "not a clean", "not a clean"},
	} {
		for folder, want := range map[bool]string{true: c.folder, false: c.not} {
			s, r := Spec{Image: HostImage, Env: c.env, SetupPhase: c.setup}, rules(GVisor)
			r.EnvFolder = folder
			if err := s.Complete(r); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, setup %v, folders %v: %v, want %q", c.env, c.setup, folder, err, want)
			}
		}
	}
}

// TestSpecWantsWhatATierHas: what a tier lacks is refused with those that have it.
func TestSpecWantsWhatATierHas(t *testing.T) {
	env := filepath.Join(t.TempDir(), "env.img")
	if err := os.WriteFile(env, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for capability, change := range map[Capability]func(*Spec){
		CanHostView: func(s *Spec) { s.Image = HostView },
		CanSetup:    func(s *Spec) { s.Env = env },
		CanSnapshot: func(s *Spec) { s.Snapshot = SnapshotID("s-" + strings.Repeat("0", 32)) },
		CanKeep:     func(s *Spec) { s.Workspace = WorkspaceID("w-" + strings.Repeat("0", 32)) },
	} {
		for _, tier := range Tiers() {
			s := Spec{Image: HostImage}
			change(&s)
			err := s.Complete(rules(tier))
			if can := slices.Contains(OfferOf(tier).Can, capability); can != (err == nil) {
				t.Errorf("%s of %s: %v", capability, tier, err)
			} else if !can && (cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(cofferdam.HintOf(err), "tier")) {
				t.Errorf("%s of %s: %v (%s)", capability, tier, err, cofferdam.HintOf(err))
			}
		}
	}
}

// TestLackingHere: what only this host has not is refused as that, and nobody is sent to
// the tier that was asked.
func TestLackingHere(t *testing.T) {
	for _, c := range []struct {
		can          Capability
		reason, hint string
	}{
		{CanCheckpoint, "a box of tier process cannot do that on this host", "ask for a box of tier gvisor or microvm or microvm-emulated"},
		{CanSetup, "a box of tier process cannot do that", "ask for a box of tier gvisor or microvm or microvm-emulated"},
		{CanHostView, "a box of tier process cannot do that on this host", "no tier can"},
	} {
		err := Lacking(Process, c.can)
		if !strings.HasSuffix(err.Error(), c.reason) || cofferdam.HintOf(err) != c.hint || !IsLacking(err) {
			t.Errorf("%s: %v (%s)", c.can, err, cofferdam.HintOf(err))
		}
	}
}

// TestHostPathsHoldNoSecret: what boxes see of /etc is what programs need.
func TestHostPathsHoldNoSecret(t *testing.T) {
	paths, err := HostPaths()
	if err != nil || len(paths) < 5 {
		t.Fatalf("%q, %v", paths, err)
	}
	for _, secret := range []string{"/etc/shadow", "/etc/ssh", "/etc/npmrc", "/etc/gitconfig", "/etc/apt", "/etc/ssl/private", "/etc/passwd", "/etc/sudoers"} {
		for _, path := range paths {
			if Within(secret, path) || Within(path, secret) {
				t.Errorf("boxes see %s of the host by %s", secret, path)
			}
		}
	}
}
