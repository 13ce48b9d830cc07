package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// tries are all calls that give a file a mode, with one that lets whoever starts it
// run as its owner, or its group; it prints those that worked.
const tries = `import os, ctypes, struct
call = ctypes.CDLL(None, use_errno=True).syscall
open("f", "w").close()
fd = os.open("f", os.O_RDWR)
T = 0o20000000 | os.O_DIRECTORY
def all_of(m, x):
  how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, m, 0)
  return {"chmod": (90, b"f", m), "fchmod": (91, fd, m), "fchmodat": (268, -100, b"f", m), "fchmodat2": (452, -100, b"f", m, 0), "junk": (90, b"f", 0xdead0000 | m),
    "creat": (85, b"c" + x, m), "open": (2, b"o" + x, os.O_CREAT, m), "openat": (257, -100, b"a" + x, os.O_CREAT, m), "tmpfile": (257, -100, b".", T | os.O_RDWR, m),
    "openat2": (437, -100, b"2" + x, how, 24), "mknod": (133, b"n" + x, 0o100000 | m, 0), "mknodat": (259, -100, b"m" + x, 0o100000 | m, 0)}
for m in 0o4755, 0o2755, 0o6755, 0o2644:
  print(oct(m), [n for n, a in all_of(m, b"%o" % m).items() if call(*a) >= 0])
os.chmod("f", 0o755); os.mkdir("d"); os.open("g", os.O_CREAT, 0o644)
print("d", call(90, b"d", 0o2775) >= 0, oct(os.stat("f").st_mode), oct(os.stat("g").st_mode), call(257, -100, b"f", 0, 0o6755) >= 0)
`

// TestNoProgramOfTheCaller: nothing is left in the workspace that runs as the
// caller, or with the caller's group, when somebody else starts it, by any call;
// other modes are as asked for. In a folder that a group shares, folders may be
// given to it.
func TestNoProgramOfTheCaller(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("not run here: the numbers are those of amd64")
	}
	const none = "0o4755 []\n0o2755 []\n0o6755 []\n0o2644 []\nd False 0o100755 0o100644 True\n"
	const group = "['chmod', 'fchmod', 'fchmodat', 'fchmodat2', 'junk']"
	shared := strings.NewReplacer("0o2755 []", "0o2755 "+group, "0o2644 []", "0o2644 "+group, "d False", "d True").Replace(none)
	for _, c := range []struct {
		name string
		mode os.FileMode // of which folder
		of   string
		want string
	}{
		{"a folder", 0o755, ".", none},
		{"a folder of a group", 0o775 | os.ModeSetgid, ".", shared},
		{"a repository of a group", 0o775 | os.ModeSetgid, ".git", shared},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, project := person(t)
			of := filepath.Join(project, c.of)
			if err := os.MkdirAll(of, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(of, c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(project, "tries.py"), []byte(tries), 0o644); err != nil {
				t.Fatal(err)
			}
			got, _ := run(t, OneOff{Init: initProgram(t), Workspace: project}, "umask 022; python3 tries.py")
			if strings.Contains(got, "fchmodat2") != strings.Contains(c.want, "fchmodat2") { // Linux 6.6
				c.want = strings.ReplaceAll(c.want, "'fchmodat2', ", "")
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			find := []string{project, "-type", "f", "-perm", "/6000"}
			if c.mode&os.ModeSetgid != 0 {
				find[4] = "/4000"
			}
			if out, err := exec.Command("find", find...).Output(); err != nil || len(out) != 0 {
				t.Errorf("on the host: %s, %v", out, err)
			}
		})
	}
}

// TestSharedFolderIsItsOwn: a link in the place of git's folder, which any command can
// make, does not say what may be done in the project.
func TestSharedFolderIsItsOwn(t *testing.T) {
	project, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Chmod(elsewhere, 0o775|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(project, ".git")); err != nil {
		t.Fatal(err)
	}
	if sharedFolder(project) || !sharedFolder(elsewhere) {
		t.Errorf("by a link: %v, by itself: %v", sharedFolder(project), sharedFolder(elsewhere))
	}
}
