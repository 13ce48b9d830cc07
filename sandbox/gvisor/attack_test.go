package gvisor

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// secrets puts canaries where hosts keep secrets and returns their text.
func secrets(t *testing.T) (canary string, places []string) {
	t.Helper()
	canary = cofferdam.NewID("canary")
	for _, dir := range []string{"/root", "/home", "/run", "/var/lib", "/tmp", "/srv", "/opt", "/etc"} {
		path := filepath.Join(dir, canary)
		if err := os.WriteFile(path, []byte(canary), 0o666); err != nil {
			t.Logf("no canary in %s: %v", dir, err)
			continue
		}
		t.Cleanup(func() { os.Remove(path) })
		places = append(places, path)
	}
	if len(places) < 4 {
		t.Fatalf("only %d canaries could be put", len(places))
	}
	return canary, places
}

// hunt looks for a canary wherever a process can look, and prints what it finds.
const hunt = `for p in $PLACES; do cat $p 2>/dev/null; done
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n' | grep -a canary
find / -xdev -name '*canary*' -not -path '/proc/*' 2>/dev/null
find /root /home /run /var /srv /opt /etc /tmp /mnt /media -maxdepth 3 -name '*canary*' 2>/dev/null
ls -d /proc/1/root/root/* /proc/1/cwd/root/* 2>/dev/null
ls /var/run/docker.sock /run/docker.sock /run/containerd /run/systemd /run/dbus 2>/dev/null
echo end`

func TestHostSecretsAreOutOfReach(t *testing.T) {
	canary, places := secrets(t)
	t.Setenv("COFFERDAM_TEST_SECRET", canary) // in the environment of the maker of boxes
	t.Setenv("PLACES", strings.Join(places, " "))

	// Positive control: without the box, the hunt finds them.
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(hunt, "find / -xdev", "find /root /tmp -maxdepth 1"))
	out, _ := cmd.Output() // find complains about some folders
	if n := bytes.Count(out, []byte(canary)); n < len(places) {
		t.Fatalf("control: the hunt finds only %d of %d canaries on the host", n, len(places))
	}

	b := newBox(t, newDriver(t))
	got, _ := sh(t, b, "PLACES='"+strings.Join(places, " ")+"'\n"+hunt)
	// The command's own text is in its arguments; the canary's bytes may be there and nowhere else.
	var found []string
	for _, line := range strings.Split(got, "\n") {
		if strings.HasPrefix(line, "PLACES=") || strings.Contains(line, "PLACES='") || line == "end" || line == "" {
			continue
		}
		if strings.HasPrefix(line, "cat /proc") || strings.HasPrefix(line, "find /") || line == "canary" {
			continue // the script itself, and what its grep looks for
		}
		found = append(found, line)
	}
	if len(found) > 0 {
		t.Errorf("found in the box:\n%s", strings.Join(found, "\n"))
	}
}

func TestNoSocketOfTheHostIsThere(t *testing.T) {
	b := newBox(t, newDriver(t))
	got, _ := sh(t, b, "find / \\( -path /proc -o -path /usr \\) -prune -o \\( -type s -o -type b \\) -print 2>/dev/null; ls -A /run /home /var/lib /var/cache; ls /root 2>&1; echo end")
	want := "/home:\nagent\n\n/run:\ncofferdam\n\n/var/cache:\n\n/var/lib:\nls: cannot access '/root': No such file or directory\nend"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestImageCannotBeWritten(t *testing.T) {
	b := newBox(t, newDriver(t))
	got, _ := sh(t, b, `for f in /x /usr/x /usr/bin/x /etc/x /etc/passwd /etc/hosts /bin/sh /var/x /home/x /.cofferdam/x /.cofferdam/init /env/x /lib/x /proc/sys/kernel/core_pattern /sys/x; do
  (echo x > $f) 2>/dev/null && echo "wrote $f"
  [ -e $f ] && rm -f $f 2>/dev/null && echo "removed $f"
  chmod 777 $f 2>/dev/null && echo "chmod $f"
done; echo end`)
	if got != "end" {
		t.Error(got)
	}
}

func TestSetuidProgramsGiveNothing(t *testing.T) {
	b := newBox(t, newDriver(t))
	found, _ := sh(t, b, "find /usr/bin -perm -4000 -user root | head -3")
	if found == "" {
		t.Skip("needs a setuid program in the image: there is none")
	}
	for _, c := range []struct{ text, want string }{
		{"cp /usr/bin/id /work/id && chmod 4755 /work/id && /work/id -u", "1000"},
		{"python3 -c 'import os\ntry:\n os.setuid(0)\nexcept PermissionError: print(os.getuid(), os.geteuid())'", "1000 1000"},
		{"mount -t tmpfs x /work 2>/dev/null; echo $?", "32"},
		{"unshare -Ur sh -c 'mount -t tmpfs x /usr && echo mounted over; cat /etc/shadow' 2>/dev/null; test -e /etc/shadow; echo $?", "1"},
		{"chown 0:0 /work 2>/dev/null; stat -c %u /work", "1000"},
		{"mknod /work/sda b 8 0 2>/dev/null; ls /work/sda 2>/dev/null; echo none", "none"},
		{"kill -9 1 2>/dev/null; echo $?", "1"},
		{"cat /proc/1/environ /proc/1/mem 2>/dev/null | head -c 10; ls /proc/1/fd 2>/dev/null; echo none", "none"},
	} {
		if got, _ := sh(t, b, c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
}

// TestLinksToOutsideAreHarmless is CMP-01 on the wall itself: what a link in
// the workspace names is what the box has under that name, never the host's.
func TestLinksToOutsideAreHarmless(t *testing.T) {
	outside := t.TempDir()
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("before"), 0o666); err != nil {
		t.Fatal(err)
	}
	d := newDriver(t)
	b := newBox(t, d)
	got, _ := sh(t, b, "cd /work; OUT="+outside+`
ln -s $OUT/canary a; ln -s $OUT/new b; ln -s $OUT dir; ln -s ../../../../../../..$OUT/canary c
for l in a b c dir/x; do
  (echo X > $l) 2>/dev/null; (cp /etc/hostname $l) 2>/dev/null; (tee $l </etc/hostname >/dev/null) 2>/dev/null
  (dd if=/etc/hostname of=$l conv=notrunc) 2>/dev/null; sed -i s/before/X/ $l 2>/dev/null
done
echo inside > real; ln -s real twin; echo more >> twin; cat real; readlink twin`)
	if got != "inside\nmore\nreal" {
		t.Errorf("twin inside the workspace: %q", got)
	}
	if data, err := os.ReadFile(canary); err != nil || string(data) != "before" {
		t.Errorf("canary: %q, %v", data, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside has %v, %v", entries, err)
	}
	// The same links, seen by the host in the workspace's file system, when the
	// box is destroyed: only links are removed.
	if err := b.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(canary); err != nil || string(data) != "before" {
		t.Errorf("canary after destroy: %q, %v", data, err)
	}
}

// TestBoxesSeeNothingOfEachOther is XTK-01 on the wall itself.
func TestBoxesSeeNothingOfEachOther(t *testing.T) {
	d := newDriver(t)
	canary := cofferdam.NewID("secret")
	one, two := newBox(t, d), newBox(t, d)
	sh(t, one, "for f in /work /tmp /home/agent /dev/shm /run; do echo "+canary+" > $f/note || echo cannot $f; done; (sleep 60 "+canary+" >/dev/null 2>&1 &) ")
	const look = "grep -r -l SECRET /work /tmp /home /dev/shm /run /var /etc 2>/dev/null; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 60'; echo end"
	text := strings.ReplaceAll(look, "SECRET", canary)
	if got, _ := sh(t, one, text); !strings.Contains(got, "/work/note") || !strings.Contains(got, "/tmp/note") {
		t.Fatalf("control: the box that wrote does not find it: %q", got)
	}
	if err := one.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]sandbox.Box{"beside": two, "after": newBox(t, d)} {
		if got, _ := sh(t, b, "grep -r -l "+canary+" /work /tmp /home /dev/shm /run /var /etc 2>/dev/null; echo end"); got != "end" {
			t.Errorf("box %s finds %q", name, got)
		}
	}
}
