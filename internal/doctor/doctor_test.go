package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/sandbox"
	"cofferdam/sandbox/keeper"
)

const fine = `{"schema":"cofferdam/tiers/v1","tiers":[{"tier":"gvisor","can":["pause"],"findings":[{"name":"gvisor-systrap","level":"ok","detail":"runs"}]},
{"tier":"microvm","usable":true,"findings":[{"name":"microvm-kvm","level":"fail","detail":"no","fix":"mend"}]}]}`

// gvisor is what a keeper prints that found this of tier gvisor.
func gvisor(findings string) string {
	return `{"schema":"cofferdam/tiers/v1","tiers":[{"tier":"gvisor","findings":` + findings + `}]}`
}

// healthy is a host on which everything is well.
func healthy(t *testing.T) Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "cfd-doc") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, p := range append(programs(), wire) {
		if err := os.WriteFile(filepath.Join(dir, p), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	installed, err := keeper.BuildOf(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Config:  config.Config{State: dir, Socket: filepath.Join(dir, "s"), Programs: dir, KeeperState: dir},
		Presets: map[string][]string{"npm": {"packages.example.com"}},
		Host: Host{
			UID: func() int { return 0 },
			Run: func(context.Context, string, ...string) ([]byte, error) { return []byte(fine), nil },
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("104.16.1.34")}, nil
			},
			Find: func(p string) (string, error) { return "/usr/bin/" + p, nil },
			Free: func(string) (uint64, uint64, error) { return 50 << 30, 1 << 20, nil },
			Now:  func() time.Time { return time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) },
			Keeper: func(_ context.Context, socket string) (keeper.Info, error) {
				if socket == "" { // the first one's, by the settings above
					return keeper.Info{Process: 7, Build: installed}, nil
				}
				return keeper.Info{}, unix.ECONNREFUSED
			},
		},
	}
}

func find(r Report, name string) sandbox.Finding {
	for _, f := range r.Items {
		if f.Name == name {
			return f
		}
	}
	return sandbox.Finding{}
}

func TestHealthyHost(t *testing.T) {
	r := Run(t.Context(), healthy(t))
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, f := range r.Items {
		if f.Level != sandbox.OK || f.Fix != "" || f.Detail == "" || seen[f.Name] || strings.ToLower(f.Name) != f.Name || strings.Contains(f.Detail, "\n") {
			t.Errorf("%+v", f)
		}
		seen[f.Name] = true
	}
	// Another tier's faults are told and forbid nothing, and what a keeper says of
	// usable is not believed.
	if len(r.Tiers) != 2 || !r.Tiers[0].Usable || r.Tiers[1].Usable {
		t.Errorf("tiers: %+v", r.Tiers)
	}
	if len(seen) < 9 {
		t.Errorf("only %d checks", len(seen))
	}
}

// A server that starts asks for the tier of its boxes alone: proving what another one
// needs would keep it waiting.
func TestOwnTierAlone(t *testing.T) {
	for _, own := range []bool{false, true} {
		o := healthy(t)
		o.Own = own
		o.Host.Run = func(_ context.Context, _ string, args ...string) ([]byte, error) {
			if asked := strings.HasSuffix(strings.Join(args, " "), " --tier gvisor"); asked != own {
				t.Errorf("own %t: %q", own, args)
			}
			return []byte(fine), nil
		}
		if err := Run(t.Context(), o).Err(); err != nil {
			t.Error(err)
		}
	}
}

// Each fault is found under its name, with its level and a fix.
func TestFaults(t *testing.T) {
	lookup := func(addrs ...string) func(*Options) {
		return func(o *Options) {
			o.Host.Lookup = func(context.Context, string) (out []netip.Addr, err error) {
				for _, a := range addrs {
					out = append(out, netip.MustParseAddr(a))
				}
				return out, nil
			}
		}
	}
	keeper := func(out string, err error) func(*Options) {
		return func(o *Options) {
			o.Host.Run = func(context.Context, string, ...string) ([]byte, error) { return []byte(out), err }
		}
	}
	for _, c := range []struct {
		name, level, fix string
		spoil            func(*Options)
	}{
		{"tun-device", sandbox.Warn, "chmod 0666 /dev/net/tun", func(o *Options) {
			o.Host.UID, o.Host.TUN = func() int { return 65534 }, func() error { return unix.EACCES }
		}},
		{"programs", sandbox.Fail, "make build", func(o *Options) { os.Remove(filepath.Join(o.Config.Programs, "cofferdam-init")) }},
		{"programs", sandbox.Warn, "make build", func(o *Options) { os.Remove(filepath.Join(o.Config.Programs, wire)) }},
		{"programs", sandbox.Fail, "make build", func(o *Options) { os.Chmod(filepath.Join(o.Config.Programs, "cofferdam-runsc"), 0o644) }},
		{"keeper", sandbox.Fail, "--check", keeper("", errors.New("exec format error"))},
		{"keeper", sandbox.Fail, "--check", keeper("[]", nil)},
		{"keeper", sandbox.Fail, "--check", keeper("hello", nil)},
		{"keeper", sandbox.Fail, "--check", keeper("\x00\xff", nil)},
		{"keeper", sandbox.Fail, "--check", keeper(gvisor(`[{"name":"x","level":"good"}]`), nil)},
		{"keeper", sandbox.Fail, "--check", keeper(gvisor(`[{"level":"ok"}]`), nil)},
		{"gvisor-systrap", sandbox.Fail, "mend", keeper(gvisor(`[{"name":"gvisor-systrap","level":"fail","detail":"no","fix":"mend"}]`), errors.New("exit status 1"))},
		{"keeper", sandbox.Fail, "--check", keeper(`{"schema":"cofferdam/tiers/v1","tiers":[]}`, nil)},
		{"keeper", sandbox.Fail, "make build", keeper(`{"schema":"cofferdam/tiers/v1","tiers":[{"tier":"process","findings":[{"name":"x","level":"ok"}]}]}`, nil)},
		{"root", sandbox.Fail, "worse", keeper(gvisor(`[{"name":"root","level":"fail","detail":"no","fix":"worse"}]`), nil)},
		{"tools", sandbox.Fail, "apt install git", func(o *Options) { o.Host.Find = func(string) (string, error) { return "", errors.New("no") } }},
		{"state", sandbox.Fail, "chmod 700", func(o *Options) { os.Chmod(o.Config.State, 0o755) }},
		{"state", sandbox.Fail, "--state", func(o *Options) { o.Config.State = filepath.Join(o.Config.Programs, "cofferdam-init") }},
		{"disk", sandbox.Fail, "free", func(o *Options) {
			o.Host.Free = func(string) (uint64, uint64, error) { return noDisk - 1, 1 << 20, nil }
		}},
		{"disk", sandbox.Warn, "free", func(o *Options) {
			o.Host.Free = func(string) (uint64, uint64, error) { return lowDisk - 1, 1 << 20, nil }
		}},
		{"disk", sandbox.Warn, "free", func(o *Options) { o.Host.Free = func(string) (uint64, uint64, error) { return 50 << 30, 10, nil } }},
		{"disk", sandbox.Warn, "free", func(o *Options) { o.Host.Free = func(string) (uint64, uint64, error) { return 0, 0, errors.New("no") } }},
		{"server", sandbox.Warn, "sudo cofferdam serve; ", func(o *Options) { o.Config.Socket = "/nonexistent" }},
		{"server", sandbox.Warn, "cofferdam serve, as this user; ", func(o *Options) {
			o.Config.Socket, o.Host.UID = "/nonexistent", func() int { return 65534 }
		}},
		{"port", sandbox.Warn, "--listen", func(o *Options) { o.Config.Listen = "203.0.113.9:1" }},
		{"clock", sandbox.Fail, "timedatectl", func(o *Options) { o.Host.Now = func() time.Time { return time.Unix(0, 0) } }},
		{"registry-npm", sandbox.Warn, `allow_addresses = ["10.0.0.7"]`, lookup("10.0.0.7", "104.16.1.34")},
		{"registry-npm", sandbox.Warn, `allow_addresses = ["10.0.0.7", "fd00::1"]`, lookup("fd00::1", "10.0.0.7", "10.0.0.7")},
		{"registry-npm", sandbox.Warn, "203.0.113.80", lookup("::ffff:203.0.113.80")},
		{"registry-npm", sandbox.Warn, "169.254.169.254", lookup("169.254.169.254")},
		{"registry-npm", sandbox.Warn, "64:ff9b::a00:1", lookup("64:ff9b::a00:1")},
		{"registry-npm", sandbox.Warn, "resolver", func(o *Options) {
			o.Host.Lookup = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
		}},
	} {
		o := healthy(t)
		c.spoil(&o)
		r := Run(t.Context(), o)
		f := find(r, c.name)
		if f.Level != c.level || !strings.Contains(f.Fix, c.fix) {
			t.Errorf("%s: got %+v, want %s with fix %q", c.name, f, c.level, c.fix)
		}
		err := r.Err()
		if (err != nil) != (c.level == sandbox.Fail) {
			t.Errorf("%s is %s, start refused: %v", c.name, c.level, err)
		}
		if err != nil && (cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), c.name+": ") || cofferdam.HintOf(err) != f.Fix) {
			t.Errorf("%s: refusal %v, hint %q", c.name, err, cofferdam.HintOf(err))
		}
	}
}

// TestSeveralFail: a start that several checks forbid names them all, the fix of the
// first, and the command that has the others'.
func TestSeveralFail(t *testing.T) {
	fail := func(name, fix string) sandbox.Finding {
		return sandbox.Finding{Name: name, Level: sandbox.Fail, Detail: "no " + name, Fix: fix}
	}
	for want, r := range map[string]Report{
		"buy one": {Tier: sandbox.MicroVM, Items: []sandbox.Finding{fail("kvm", "buy one")}},
		"buy one; cofferdam doctor --tier microvm has the fix of each": {Tier: sandbox.MicroVM, Items: []sandbox.Finding{fail("kvm", "buy one"), fail("swap", "off")}},
		"buy one; cofferdam doctor has the fix of each":                {Tier: sandbox.GVisor, Items: []sandbox.Finding{fail("kvm", "buy one"), fail("swap", "off")}},
		"cofferdam doctor lists every check":                           {Tier: sandbox.GVisor, Items: []sandbox.Finding{fail("kvm", ""), fail("swap", "off")}},
	} {
		err := r.Err()
		if cofferdam.HintOf(err) != want || !strings.Contains(err.Error(), "kvm: no kvm") || len(r.Items) > 1 && !strings.Contains(err.Error(), "swap: no swap") {
			t.Errorf("%v\nhint: %s\nwant: %s", err, cofferdam.HintOf(err), want)
		}
	}
}

func TestListedAddressIsFine(t *testing.T) {
	o := healthy(t)
	o.Config.AllowAddresses = []config.AddrAndPort{{Addr: netip.MustParseAddr("10.0.0.7"), Port: 443}}
	o.Host.Lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.7")}, nil
	}
	if f := find(Run(t.Context(), o), "registry-npm"); f.Level != sandbox.OK {
		t.Errorf("%+v", f)
	}
}

func TestReadOnlyStateFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a read-only folder")
	}
	o := healthy(t)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, "mode=0700"); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	for _, state := range []string{dir, filepath.Join(dir, "not", "yet")} {
		o.Config.State = state
		r := Run(t.Context(), o)
		if f := find(r, "state"); f.Level != sandbox.Fail || !strings.Contains(f.Detail, "read-only") || r.Err() == nil {
			t.Errorf("%s: %+v", state, f)
		}
	}
}

// A state folder that is not there yet is judged by where it will be made.
func TestStateToBeMade(t *testing.T) {
	o := healthy(t)
	o.Config.State = filepath.Join(o.Config.State, "a", "b")
	if f := find(Run(t.Context(), o), "state"); f.Level != sandbox.OK {
		t.Errorf("%+v", f)
	}
}

func TestServingServerDoesNotFindItself(t *testing.T) {
	o := healthy(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o.Config.Listen, o.Config.Socket = l.Addr().String(), "/nonexistent"
	if f := find(Run(t.Context(), o), "port"); f.Level != sandbox.Warn {
		t.Errorf("before a start: %+v", f)
	}
	o.Serving = true
	if r := Run(t.Context(), o); r.Err() != nil || find(r, "port").Level != sandbox.OK || find(r, "socket").Level != sandbox.OK {
		t.Errorf("of itself: %+v", r.Items)
	}
}

// Each keeper that runs is told with its build, and what its state means.
func TestKeepers(t *testing.T) {
	o := healthy(t)
	o.Config.Keeper, o.Config.KeeperState = "/r/k.sock", "/k"
	o.Serving, o.Config.Socket = false, filepath.Join(t.TempDir(), "nobody")
	installed, err := keeper.BuildOf(o.Config.Programs, "")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]any{}
	o.Host.Keeper = func(_ context.Context, socket string) (keeper.Info, error) {
		switch a := answers[socket].(type) {
		case keeper.Info:
			return a, nil
		case error:
			return keeper.Info{}, a
		}
		return keeper.Info{}, unix.ENOENT
	}
	if f := find(Run(t.Context(), o), "keeper-1"); f.Level != sandbox.OK || !strings.Contains(f.Detail, "none runs") || !strings.Contains(f.Detail, installed) {
		t.Errorf("none: %+v", f)
	}
	serving := o
	serving.Serving = true
	if f := find(Run(t.Context(), serving), "keeper-1"); f.Level != sandbox.Warn || !strings.Contains(f.Detail, "although a server answers") || !strings.Contains(f.Fix, "/k/keeper.log") {
		t.Errorf("none under a server: %+v", f)
	}
	answers["/r/k.sock"] = keeper.Info{Process: 7, Build: "old", Boxes: 2, Draining: true}
	answers["/r/k-2.sock"] = keeper.Info{Process: 8, Build: installed, Boxes: 1}
	answers["/r/k-3.sock"] = keeper.Info{Process: 9, Build: "other"}
	answers["/r/k-4.sock"] = &cofferdam.Error{Op: "t", Kind: cofferdam.Unavailable, Subject: "keeper", Reason: "hangs", Hint: "kill it"}
	r := Run(t.Context(), o)
	for _, c := range []struct{ name, level, detail, fix string }{
		{"keeper-1", sandbox.OK, "process 7, build old, 2 boxes: it is being replaced", ""},
		{"keeper-2", sandbox.OK, "process 8, build " + installed + ", 1 boxes", ""},
		{"keeper-3", sandbox.Warn, "build " + installed + " is installed", "start the server again"},
		{"keeper-4", sandbox.Warn, "hangs", "kill it"},
	} {
		if f := find(r, c.name); f.Level != c.level || !strings.Contains(f.Detail, c.detail) || !strings.Contains(f.Fix, c.fix) || (c.fix == "") != (f.Fix == "") {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	answers = map[string]any{"/r/k.sock": unix.EACCES}
	if f := find(Run(t.Context(), o), "keeper-1"); f.Level != sandbox.Warn || !strings.Contains(f.Fix, "user of the server") {
		t.Errorf("one that this user may not ask: %+v", f)
	}
}
