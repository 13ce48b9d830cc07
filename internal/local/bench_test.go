package local

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// bin is where make build puts the programs, seen from this package.
const bin = "../../bin"

// BenchmarkTrue is one command that does nothing, from the start of the program
// that makes the box to its end: ours with all its walls, its wire and its trace,
// and those that people use in its place. Each round runs all of them in turn, so
// that a machine whose speed drifts does so for all of them.
func BenchmarkTrue(b *testing.B) {
	var list []contender
	for _, c := range contenders(b) {
		if c.missing == "" {
			if out, err := c.run(b).CombinedOutput(); err != nil {
				c.missing = c.name + ": " + string(bytes.TrimSpace(out))
			}
		}
		switch {
		case c.missing == "":
			list = append(list, c)
		case c.name == "cofferdam":
			b.Fatal(c.missing)
		default:
			b.Logf("not run here: %s", c.missing)
		}
	}
	times := map[string][]time.Duration{}
	for b.Loop() {
		for _, c := range list {
			began := time.Now()
			out, err := c.run(b).CombinedOutput()
			if times[c.name] = append(times[c.name], time.Since(began)); err != nil {
				b.Fatalf("%s: %v: %s", c.name, err, out)
			}
		}
	}
	for _, c := range list {
		t := times[c.name]
		slices.Sort(t)
		b.ReportMetric(float64(t[len(t)/2].Microseconds())/1000, c.name+"-p50-ms")
		b.ReportMetric(float64(t[len(t)*95/100].Microseconds())/1000, c.name+"-p95-ms")
	}
}

// contender makes a box around true.
type contender struct {
	name, missing string
	run           func(b *testing.B) *exec.Cmd
}

// contenders are told to build as much as they can of what ours has: their
// own namespaces for all, a view of the host that cannot be written, and no
// network. None of them has a wire, a trace or Landlock.
func contenders(b *testing.B) []contender {
	home, work := b.TempDir(), b.TempDir()
	ours, err := filepath.Abs(filepath.Join(bin, "cofferdam"))
	if err != nil {
		b.Fatal(err)
	}
	runsc, err := filepath.Abs(filepath.Join(bin, "cofferdam-runsc"))
	if err != nil {
		b.Fatal(err)
	}
	bundle := ociBundle(b)
	root := filepath.Join(bundle, "root")
	n := 0
	id := func() string {
		n++
		return "bench-" + time.Now().Format("150405") + "-" + string(rune('a'+n%26)) + string(rune('a'+n/26%26)) + string(rune('a'+n/676%26))
	}
	list := []contender{
		{name: "cofferdam", run: plainly(work, []string{"HOME=" + home}, ours, "run", "--", "true")},
		{name: "nothing", run: plainly(work, nil, "true")},
		{name: "bubblewrap", run: plainly(work, nil, "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", work, work, "true")},
		{name: "firejail", run: plainly(work, nil, "firejail", "--quiet", "--noprofile", "--net=none", "--private-tmp", "--private-dev", "--caps.drop=all", "--seccomp", "true")},
	}
	// These two look for their settings in the caller's own home folder.
	list = append(list, contender{name: "codex", run: plainly(work, nil, "codex", "sandbox", "--", "true")}, contender{name: "srt", run: plainly(work, nil, "srt", "true")},
		// podman asks for more open files than a host may permit, and its own choice, crun, refuses control groups of both versions.
		contender{name: "podman", run: plainly(work, nil, "podman", "run", "--rm", "--network=none", "--read-only", "--runtime=runc", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--volume=/usr:/usr:ro", "--rootfs", root, "/usr/bin/true")})
	list = append(list, contender{name: "runc", run: func(*testing.B) *exec.Cmd { return exec.Command("runc", "run", "--bundle", bundle, id()) }})
	list = append(list, contender{name: "crun", run: func(*testing.B) *exec.Cmd {
		return exec.Command("crun", "--cgroup-manager=disabled", "run", "--bundle", bundle, id())
	}})
	list = append(list, contender{name: "runsc", run: func(*testing.B) *exec.Cmd {
		return exec.Command(runsc, "--root="+filepath.Join(home, "runsc"), "--platform=systrap", "--network=none", "--ignore-cgroups",
			"--overlay2=none", "--host-settings=ignore", "run", "--bundle="+bundle, id())
	}})
	for i, c := range list {
		if _, err := exec.LookPath(c.run(b).Path); err != nil {
			list[i].missing = c.name + " is not installed"
		}
		if os.Getuid() != 0 && (c.name == "runc" || c.name == "crun" || c.name == "runsc") {
			list[i].missing = "it needs root"
		}
	}
	return list
}

// plainly is a program with arguments, in work.
func plainly(work string, env []string, name string, args ...string) func(*testing.B) *exec.Cmd {
	return func(*testing.B) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = work, append(os.Environ(), env...)
		return cmd
	}
}

// ociBundle is a container of the host's own programs, read-only, with a
// namespace of each kind, as the specification's own example has them.
func ociBundle(b *testing.B) string {
	dir := b.TempDir()
	for _, d := range []string{"usr", "etc", "proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, "root", d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for _, l := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+l, filepath.Join(dir, "root", l)); err != nil {
			b.Fatal(err)
		}
	}
	var ns []specs.LinuxNamespace
	for _, t := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace} {
		ns = append(ns, specs.LinuxNamespace{Type: t})
	}
	data, err := json.Marshal(specs.Spec{
		Version: specs.Version, Root: &specs.Root{Path: "root", Readonly: true}, Hostname: "box",
		Process: &specs.Process{Args: []string{"true"}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}, NoNewPrivileges: true},
		Mounts: []specs.Mount{
			{Destination: "/usr", Type: "bind", Source: "/usr", Options: []string{"rbind", "ro"}},
			{Destination: "/etc", Type: "bind", Source: "/etc", Options: []string{"rbind", "ro"}},
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev"}},
		},
		Linux: &specs.Linux{Namespaces: ns},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		b.Fatal(err)
	}
	return dir
}
