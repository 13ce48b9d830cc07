package gvisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam/sandbox"
)

// muslImage makes a root file system from busybox and musl: no glibc, no
// program of the host's /usr, and files that must not reach a box unchanged.
func muslImage(t *testing.T) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox-static: " + err.Error())
	}
	compiler, err := exec.LookPath("musl-gcc")
	if err != nil {
		t.Skip("needs musl-tools: " + err.Error())
	}
	dir := t.TempDir()
	for _, d := range []string{"bin", "lib", "usr/bin", "etc", "var/lib", "home/somebody", "work", "tmp", "run/secrets", "srv"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, text string }{
		{"etc/alpine-release", "3.0\n"},
		{"etc/passwd", "root:x:0:0:root:/root:/bin/ash\n"},
		{"home/somebody/note", "not for boxes"},
		{"run/secrets/key", "not for boxes"},
		{"work/old", "not for boxes"},
		{"srv/data", "data of the image\n"},
		{"hello.c", "#include <stdio.h>\n#include <pwd.h>\n#include <unistd.h>\nint main(void){struct passwd*p=getpwuid(getuid());printf(\"musl %s\\n\",p?p->pw_name:\"?\");return 0;}\n"},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.path), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := "cp " + busybox + " bin/busybox && for a in sh ls cat echo id touch stat readlink mkdir; do ln -s busybox bin/$a; done\n" +
		compiler + " -o usr/bin/hello hello.c\n" +
		"loader=$(readelf -l usr/bin/hello | sed -n 's/.*interpreter: \\(.*\\)]/\\1/p') && mkdir -p .$(dirname $loader) && cp $(readlink -f $loader) .$loader"
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("making image: %v: %s", err, out)
	}
	return dir
}

// listing is every path of a folder with its mode, size and time.
func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%p %m %s %T@\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestFolderAsImage(t *testing.T) {
	image := muslImage(t)
	before := listing(t, image)
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) {
		s.Image = image
		s.Files = []sandbox.File{{Path: "/etc/extra/file", Data: []byte("extra\n")}}
	})
	for _, c := range []struct{ text, want string }{
		{"hello; id -u", "musl agent\n1000"},
		{"cat /etc/alpine-release /etc/extra/file /srv/data; cat /etc/resolv.conf", "3.0\nextra\ndata of the image\nnameserver 10.99.0.1\noptions timeout:2 attempts:5"},
		{"ls /home /run /work; ls /usr", "/home:\nagent\n\n/run:\ncofferdam\n\n/work:\nbin"},
		{"cat /home/somebody/note /run/secrets/key /work/old 2>/dev/null; ls /root /usr/lib 2>/dev/null; echo none", "none"},
		{"for f in /bin/x /srv/x /etc/x /x; do touch $f 2>/dev/null && echo wrote $f; done; touch /work/x /tmp/x ~/x && echo ok", "ok"},
	} {
		if got, r := sh(t, b, c.text); got != c.want {
			t.Errorf("%s: got %q (%+v), want %q", c.text, got, r, c.want)
		}
	}
	if after := listing(t, image); after != before {
		t.Errorf("the image changed:\n%s\nwas\n%s", after, before)
	}
}

// TestImageThatChangesIsReadAgain changes what is copied from an image.
func TestImageThatChangesIsReadAgain(t *testing.T) {
	image := muslImage(t)
	d := newDriver(t)
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(image, "etc/version"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		b := newBox(t, d, func(s *sandbox.Spec) { s.Image = image })
		if got, _ := sh(t, b, "cat /etc/version"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if n := len(d.roots); n != 2 {
		t.Errorf("%d roots are kept, want 2", n)
	}
}

// TestHostileImage has in /etc and at the top what must not be followed or read.
func TestHostileImage(t *testing.T) {
	image := muslImage(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := "ln -s " + secret + " etc/link; ln -s " + secret + " top; ln -s / etc/root; mkfifo etc/fifo fifo; mknod etc/disk b 7 0; echo shadow > etc/shadow; chmod 600 etc/shadow; ln -s /etc opt"
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = image
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) { s.Image = image })
	got, _ := sh(t, b, "cat /etc/link /top /etc/root"+secret+" /etc/shadow /opt/shadow 2>/dev/null; ls /etc/fifo /fifo /etc/disk 2>/dev/null; readlink /top; ls /etc/root | head -1")
	if lines := strings.Split(got, "\n"); lines[0] != secret || strings.Contains(got, "secret of") || strings.Contains(got, "shadow") {
		t.Errorf("got %q", got)
	}
}

// TestImageCannotLeadFilesOut: what the host puts into a box is written into the
// box's own root, although the image has a link to a folder of the host, or a
// file, where a folder should be.
func TestImageCannotLeadFilesOut(t *testing.T) {
	image, out := muslImage(t), t.TempDir()
	for name, target := range map[string]string{"etc/abs": out, "etc/rel": strings.Repeat("../", 20) + strings.TrimPrefix(out, "/"), "etc/hosts": out + "/hosts"} {
		if err := os.Symlink(target, filepath.Join(image, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(image, "etc/flat"), []byte("a file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) {
		s.Image = image
		s.Files = []sandbox.File{
			{Path: "/etc/abs/one", Data: []byte("1\n")},
			{Path: "/etc/rel/two", Data: []byte("2\n"), Shared: true},
			{Path: "/etc/abs/three", Link: "/etc/rel/two"},
			{Path: "/etc/flat/four", Data: []byte("4\n"), Shared: true},
		}
	})
	if got, r := sh(t, b, "cat /etc/abs/one /etc/rel/two /etc/abs/three /etc/flat/four; grep -c '127.0.0.1.*localhost' /etc/hosts"); got != "1\n2\n2\n4\n1" {
		t.Errorf("got %q (%+v)", got, r)
	}
	if list, err := os.ReadDir(out); err != nil || len(list) != 0 {
		t.Errorf("written outside: %v %v", list, err)
	}
}
