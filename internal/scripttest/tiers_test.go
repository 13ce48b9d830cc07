package scripttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam/sandbox/sandboxtest"
)

// Scripts that run on more than the default tier. In make test some of them do, in
// make soak all.
var (
	processShort = []string{"attacks/CMP-09", "attacks/RES-01", "attacks/XTK-05"}
	processAll   = []string{
		"attacks/CMP-01", "attacks/CMP-02", "attacks/CMP-03", "attacks/CMP-04", "attacks/CMP-05", "attacks/CMP-06", "attacks/CMP-07", "attacks/CMP-08",
		"attacks/CMP-09", "attacks/CMP-15", "attacks/CMP-17", "attacks/CMP-18", "attacks/CMP-20",
		"attacks/RES-01", "attacks/RES-02", "attacks/RES-04", "attacks/RES-05", "attacks/RES-06", "attacks/RES-08",
		"attacks/XTK-01", "attacks/XTK-05", "attacks/XTK-06",
	}
	userShort = map[string][]string{"gvisor": {"user/RES-disk", "attacks/XTK-01"}, "process": {"user/RES-memory", "attacks/XTK-05"}}
	userAll   = []string{"user/RES-memory", "user/RES-disk", "user/RES-moves", "attacks/RES-01", "attacks/RES-05", "attacks/XTK-01", "attacks/XTK-05"}
)

func scripts(names []string) (files []string) {
	for _, n := range names {
		files = append(files, filepath.Join(Root, "testdata", filepath.FromSlash(n)+".txtar"))
	}
	return files
}

// TestAttacksOfProcess runs attack scripts in boxes of tier process.
func TestAttacksOfProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: as an ordinary user runs what TestScriptsOfUser names")
	}
	names, bomb := processShort, "0.25"
	if os.Getenv("COFFERDAM_SOAK") != "" {
		names, bomb = processAll, "4"
	}
	runFiles(t, scripts(names), "TIER=process", "BOMB="+bomb)
}

// theirScripts names to a test's process which scripts it runs as an ordinary user.
const theirScripts = "COFFERDAM_TEST_SCRIPTS"

// TestScriptsOfUser runs attack scripts as an ordinary user with a range of ids:
// keeper, server, boxes and the script's own commands are that user's.
func TestScriptsOfUser(t *testing.T) {
	if names := os.Getenv(theirScripts); names != "" && os.Geteuid() == sandboxtest.UserID {
		runFiles(t, scripts(strings.Split(names, ",")), "TIER="+os.Getenv("TIER"))
		return
	}
	lists := userShort
	if os.Getenv("COFFERDAM_SOAK") != "" {
		lists = map[string][]string{"gvisor": userAll, "process": userAll}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tree, program := openTree(t), sandboxtest.OpenCopy(t, self)
	for tier, names := range lists {
		t.Run(tier, func(t *testing.T) {
			t.Parallel()
			cmd := sandboxtest.AsUser(t, program, "-test.run=^TestScriptsOfUser$", "-test.v")
			cmd.Dir = filepath.Join(tree, "internal", "scripttest")
			cmd.Env = append(userEnv(sandboxtest.OpenFolder(t)), "TMPDIR="+sandboxtest.OpenFolder(t), "TIER="+tier, theirScripts+"="+strings.Join(names, ","))
			out, err := cmd.CombinedOutput()
			for _, n := range names {
				if !strings.Contains(string(out), "--- PASS: TestScriptsOfUser/"+filepath.Base(n)+" ") {
					t.Errorf("%s did not pass", n)
				}
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// openTree is the project as scripts need it, where every user can read it.
func openTree(t *testing.T) string {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	tree := sandboxtest.OpenFolder(t)
	for _, dir := range []string{"bin", "internal/scripttest"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	place(t, bin, filepath.Join(tree, "bin"))
	if out, err := exec.Command("cp", "-r", filepath.Join(Root, "testdata"), tree).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return tree
}
