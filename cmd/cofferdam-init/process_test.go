package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"cofferdam/sandbox/guest"
)

func TestParseStatus(t *testing.T) {
	const plain = "Name:\tsh\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t7\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t5 1073741831 \nThreads:\t1\n"
	tests := []struct {
		name, status string
		want         process
	}{
		{"plain", plain, process{pid: 9, uid: 1000, mark: guest.MarkBase + 7}},
		{"name with other lines in it", "Name:\ta\nGroups:\t1\n" + strings.TrimPrefix(plain, "Name:\tsh\n"), process{pid: 9, uid: 1000, mark: guest.MarkBase + 7}},
		{"name that plays dead", "Name:\ta\nState:\tZ\n" + strings.TrimPrefix(plain, "Name:\tsh\n"), process{pid: 9, uid: 1000, mark: guest.MarkBase + 7}},
		{"stopped", strings.Replace(plain, "S (sleeping)", "T (stopped)", 1), process{pid: 9, uid: 1000, mark: guest.MarkBase + 7, stop: true}},
		{"zombie", strings.Replace(plain, "S (sleeping)", "Z (zombie)", 1), process{pid: 9, uid: 1000, mark: guest.MarkBase + 7, dead: true}},
		{"zombie whose threads run", strings.Replace(strings.Replace(plain, "S (sleeping)", "Z (zombie)", 1), "Threads:\t1", "Threads:\t2", 1), process{pid: 9, uid: 1000, mark: guest.MarkBase + 7}},
		{"no mark", strings.Replace(plain, " 1073741831", "", 1), process{pid: 9, uid: 1000}},
		{"other large group", strings.Replace(plain, "1073741831", "4294967294", 1), process{pid: 9, uid: 1000}},
		{"where ids are few", strings.Replace(plain, "1073741831", "40007", 1), process{pid: 9, uid: 1000, mark: guest.MarkBase + 7}},
		{"a group of the host's", strings.Replace(plain, "1073741831", "56385", 1), process{pid: 9, uid: 1000}},
		{"nothing", "", process{pid: 9}},
	}
	for _, tt := range tests {
		got := parseStatus(9, []byte(tt.status))
		got.threads, got.fdSize, got.memory = 0, 0, 0
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestGuestDeps pins what pid 1 of every box links, and that it stays small.
func TestGuestDeps(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	want := []string{"cofferdam", "cofferdam/cmd/cofferdam-init", "cofferdam/sandbox", "cofferdam/sandbox/cgroup", "cofferdam/sandbox/guest", "cofferdam/sandbox/wall", "cofferdam/sandbox/watch", "golang.org/x/sys/unix"}
	if !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
	out, err = exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"net", "net/http", "os/exec", "regexp", "text/template", "crypto/tls"} {
		if slices.Contains(strings.Fields(string(out)), heavy) {
			t.Errorf("links %s", heavy)
		}
	}
	program := t.TempDir() + "/cofferdam-init"
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if fi, err := os.Stat(program); err != nil || fi.Size() > 4<<20 {
		t.Errorf("%d bytes, want at most 4 MiB; %v", fi.Size(), err)
	}
}
