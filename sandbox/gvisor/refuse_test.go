package gvisor

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestMissingLayerIsRefused is CMP-13: without a layer there is no box, and the
// refusal names the layer and the fix. The same driver with nothing missing is
// the control.
func TestMissingLayerIsRefused(t *testing.T) {
	good := options(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		layer  string
	}{
		{"nothing", func(*Options) {}, ""},
		{"no sandbox program", func(o *Options) { o.Runsc += "-missing" }, "gvisor-program"},
		{"sandbox program not executable", func(o *Options) { o.Runsc = plain }, "gvisor-program"},
		{"sandbox program is another", func(o *Options) { o.Runsc = script }, "gvisor-program"},
		{"no pid 1", func(o *Options) { o.Init += "-missing" }, "init-program"},
		{"pid 1 not executable", func(o *Options) { o.Init = plain }, "init-program"},
		{"pid 1 no program", func(o *Options) { o.Init = script }, "init-program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t)
			o.Runsc, o.Init = good.Runsc, good.Init
			c.change(&o)
			d, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close(context.Background())
			spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()}
			b, err := d.Create(context.Background(), spec)
			if c.layer == "" {
				if err != nil {
					t.Fatalf("control: %v", err)
				}
				if err := b.Destroy(context.Background()); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("there is a box without it")
			}
			if cofferdam.KindOf(err) != cofferdam.Unavailable || !strings.Contains(err.Error(), c.layer) || !strings.Contains(cofferdam.HintOf(err), "build") {
				t.Errorf("kind %v, %q, hint %q", cofferdam.KindOf(err), err, cofferdam.HintOf(err))
			}
			if _, err := d.Open(context.Background(), spec.ID); cofferdam.KindOf(err) != cofferdam.NotFound {
				t.Errorf("after the refusal: %v", err)
			}
		})
	}
}

// TestHostWithoutLayers runs the checks, and a creation, in a mount namespace
// where the host lacks one thing.
func TestHostWithoutLayers(t *testing.T) {
	o := options(t)
	if os.Getenv("COFFERDAM_TEST_LAYERS") != "" {
		inPoorHost(t, o)
		return
	}
	for _, c := range []struct{ name, hide, finding, hint string }{
		{"nothing missing", "true", "", ""},
		{"no tun", "mount -t tmpfs none /dev/net", "tun-device", "chmod 0666 /dev/net/tun"},
		{"no control groups", "mount -t tmpfs none /sys/fs/cgroup", "control-groups", "cgroup controllers"},
		{"no loop devices", "mount --bind /dev/null /dev/loop-control", "sized-disk", "loop"},
		{"no mkfs", "for d in /usr/sbin /sbin; do [ -L $d ] || [ ! -e $d/mkfs.ext4 ] || mount --bind /dev/null $d/mkfs.ext4; done", "sized-disk", "e2fsprogs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("unshare", "--mount", "sh", "-ec", c.hide+"\nexec "+os.Args[0]+" -test.run '^TestHostWithoutLayers$' -test.v")
			cmd.Env = append(os.Environ(), "COFFERDAM_TEST_LAYERS=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			_, line, _ := strings.Cut(string(out), "poor host: ")
			var got struct{ Failed, Error, Hint string }
			if err := json.Unmarshal([]byte(strings.SplitN(line, "\n", 2)[0]), &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got.Failed != c.finding {
				t.Errorf("failing findings %q, want %q", got.Failed, c.finding)
			}
			if (got.Error == "") != (c.finding == "") || !strings.Contains(got.Error, c.finding) || !strings.Contains(got.Hint, c.hint) {
				t.Errorf("creation: %q, hint %q", got.Error, got.Hint)
			}
		})
	}
}

// inPoorHost is the inside of TestHostWithoutLayers.
func inPoorHost(t *testing.T, o Options) {
	var got struct{ Failed, Error, Hint string }
	var failed []string
	for _, f := range Check(context.Background(), o) {
		// What depends on the missing thing fails with it; the first is the cause.
		if f.Level == sandbox.Fail && f.Name != "network-namespace" {
			failed = append(failed, f.Name)
		}
	}
	got.Failed = strings.Join(failed, " ")
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(context.Background())
	b, err := d.Create(context.Background(), sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()})
	if err != nil {
		got.Error, got.Hint = err.Error(), cofferdam.HintOf(err)
	} else if err := b.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	data, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("poor host: " + string(data) + "\n")
}

func TestSpecsThatAreRefused(t *testing.T) {
	d := newDriver(t)
	folder := t.TempDir() // no root file system
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/usr", link); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*sandbox.Spec){
		"image is the host's root": func(s *sandbox.Spec) { s.Image = "/" },
		"image holds our state":    func(s *sandbox.Spec) { s.Image = filepath.Dir(d.o.Root) },
		"image without a shell":    func(s *sandbox.Spec) { s.Image = folder },
		"image is a link":          func(s *sandbox.Spec) { s.Image = link },
		"image with dots":          func(s *sandbox.Spec) { s.Image = "/usr/../usr" },
		"id with a path":           func(s *sandbox.Spec) { s.ID = "b-../../../../etc/passwd000000000000" },
		"short id":                 func(s *sandbox.Spec) { s.ID = "b-12" },
		"memory too small":         func(s *sandbox.Spec) { s.Limits.Memory = 1 << 20 },
		"negative disk":            func(s *sandbox.Spec) { s.Limits.Disk = -1 },
		"huge disk":                func(s *sandbox.Spec) { s.Limits.Disk = 1 << 60 },
		"temp larger than memory":  func(s *sandbox.Spec) { s.Limits.Temp = s.Limits.Memory },
		"too many pids":            func(s *sandbox.Spec) { s.Limits.PIDs = 1 << 40 },
		"hostname with a newline":  func(s *sandbox.Spec) { s.Hostname = "a\nb" },
		"file under the workspace": func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/work/x"}} },
		"file over pid 1":          func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/.cofferdam/init"}} },
		"file in the image":        func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/usr/bin/sh"}} },
		"file with dots":           func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/../work/x"}} },
		"two files of one name":    func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/etc/x"}, {Path: "/etc/x"}} },
		"file too large": func(s *sandbox.Spec) {
			s.Files = []sandbox.File{{Path: "/etc/x", Data: make([]byte, sandbox.MaxFileBytes+1)}}
		},
		"environment is a folder":   func(s *sandbox.Spec) { s.Env = folder },
		"environment is relative":   func(s *sandbox.Spec) { s.Env = "env.img" },
		"setup without environment": func(s *sandbox.Spec) { s.SetupPhase = true },
	} {
		spec := sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.GVisor, Image: sandbox.HostImage, Limits: small()}
		change(&spec)
		b, err := d.Create(context.Background(), spec)
		if err == nil {
			t.Errorf("%s: there is a box", name)
			if err := b.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
			continue
		}
		if cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: kind %v: %v", name, cofferdam.KindOf(err), err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(d.o.Root, "boxes")); err != nil || len(left) > 0 {
		t.Errorf("left in the state folder: %v, %v", left, err)
	}
}
