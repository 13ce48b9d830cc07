package microvm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/cage"
)

// TestWhoReadsImages looks at the program that reads a hostile image, with a shell
// in its place: from outside at its ids and rights, from inside at what it can do.
// The control is the same without Landlock, and as root.
func TestWhoReadsImages(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not run here: needs root")
	}
	dir := t.TempDir()
	image, out, spare := filepath.Join(dir, "image"), filepath.Join(dir, "out"), filepath.Join(dir, "spare")
	if err := os.Mkdir(image, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{filepath.Join(image, "closed"): 0o600, out: 0o600, spare: 0o666} {
		if err := os.WriteFile(path, []byte("text\n"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	const tries = `read x <&3
cat /image/closed >/out && echo read
echo x >/spare && echo wrote beyond
echo x >/image/closed && echo wrote image
mkdir /image/new && echo made
kill -0 1 2>/dev/null && test $$ != 1 && echo signalled
cat /etc/shadow /image/../etc/shadow && echo host
true </dev/tcp/127.0.0.1/22 && echo network
head -c 5000000 /usr/bin/git /usr/bin/perl >/out
echo over`
	run := func(change func(*cage.Program)) (status, said string, size int64) {
		t.Helper()
		g, err := new(Driver).rootMaker("/usr/bin/bash", t.TempDir(), out, []entry{{filepath.Join(image, "closed"), "/closed"}})
		if err != nil {
			t.Fatal(err)
		}
		begin, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		g.Args, g.Files, g.Most = []string{"-c", tries}, []*os.File{begin}, 1<<20
		g.Binds = append(g.Binds, cage.Bind{From: spare, To: "/spare", Writable: true})
		change(&g)
		if err := os.Chown(out, g.UID, g.UID); err != nil {
			t.Fatal(err)
		}
		p, err := g.Start()
		begin.Close()
		if err != nil {
			theirs.Close()
			t.Fatal(err)
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		theirs.Close()
		if err != nil {
			t.Fatal(err)
		}
		<-p.Ended
		info, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(data), p.Words(), info.Size()
	}
	status, said, size := run(func(*cage.Program) {})
	user := fmt.Sprint(firstUser + imageUser)
	for _, want := range []string{
		"Uid:\t" + strings.TrimSuffix(strings.Repeat(user+"\t", 4), "\t") + "\n", "Gid:\t" + strings.TrimSuffix(strings.Repeat(user+"\t", 4), "\t") + "\n",
		"Groups:\t \n", "NoNewPrivs:\t1\n", fmt.Sprintf("CapEff:\t%016x\n", 1<<unix.CAP_DAC_READ_SEARCH), fmt.Sprintf("CapPrm:\t%016x\n", 1<<unix.CAP_DAC_READ_SEARCH),
	} {
		if !strings.Contains(status, want) {
			t.Errorf("its status lacks %q:\n%s", want, status)
		}
	}
	if !strings.Contains(said, "read") || size > 1<<20 {
		t.Errorf("it has to read the image and write its file, of %d bytes: %s", size, said)
	}
	for _, bad := range []string{"wrote beyond", "wrote image", "made", "signalled", "host", "network"} {
		if strings.Contains(said, bad) {
			t.Errorf("it %s: %s", bad, said)
		}
	}
	if data, err := os.ReadFile(spare); string(data) != "text\n" || err != nil {
		t.Errorf("a file that it was not to write: %q, %v", data, err)
	}
	if _, said, _ = run(func(g *cage.Program) { g.Landlock = false }); !strings.Contains(said, "wrote beyond") {
		t.Errorf("control: without Landlock it writes the spare file: %s", said)
	}
	if status, _, _ := run(func(g *cage.Program) { g.UID, g.Keep = 0, nil }); !strings.Contains(status, "Uid:\t0\t") {
		t.Errorf("control: the status of root: %s", status)
	}
}

// TestRootHasEverything makes a root of files that only their owners read, and
// reads it with another program.
func TestRootHasEverything(t *testing.T) {
	dump, err := exec.LookPath("dump.erofs")
	if err != nil {
		t.Skip("needs erofs-utils: " + err.Error())
	}
	d := newDriver(t)
	image := t.TempDir()
	path := filepath.Join(image, "closed")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 5000), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1234, 4321); err != nil {
		t.Fatal(err)
	}
	list, err := entries(image)
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(d.o.Root, "made")
	if err := d.makeRoot(context.Background(), made, list); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(dump, "--path=/closed", made).CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "Size: 5000") || !strings.Contains(text, "Uid: 1234") || !strings.Contains(text, "Gid: 4321") || !strings.Contains(text, "0400") {
		t.Errorf("%v: %s", err, text)
	}
	var st unix.Stat_t
	if err := unix.Stat(made, &st); err != nil || st.Uid != 0 || st.Mode&0o777 != 0o444 {
		t.Errorf("the root is user %d's, with mode %o: %v", st.Uid, st.Mode&0o777, err)
	}
}
