package cli

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"cofferdam"
)

// stateDir is short enough for sockets.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cfd-cli")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestServeHandsItsFlagsOn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the server refuses to start without")
	}
	state, b := stateDir(t), &bench{t: t, env: map[string]string{}}
	file := filepath.Join(state, "c.toml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(state, "test-token")
	code, _, errs := b.run("serve", "--state", state, "--listen", "off", "--config", file, "--debug", "--debug-person", "tess", "--debug-person-token", token, "--programs", state)
	want := []string{state + "/cofferdam-server", "--config=" + file, "--debug-person-token=" + token, "--debug-person=tess", "--debug=true", "--listen=off", "--programs=" + state, "--state=" + state}
	if code != 1 || !twoLinesAtLeast(errs) || !slices.Equal(b.executed, want) {
		t.Errorf("exit %d\n%s\ngot  %q\nwant %q", code, errs, b.executed, want)
	}
}

// TestServerThatIsNotThere: what is missing is said, and how one gets it.
func TestServerThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	for err, want := range map[error]string{
		&fs.PathError{Op: "exec", Path: dir, Err: fs.ErrNotExist}:   "start server: the program cofferdam-server is not in " + dir,
		&fs.PathError{Op: "exec", Path: dir, Err: fs.ErrPermission}: "start server: this user may not start " + dir + "/cofferdam-server",
		syscall.ENOENT:  "the program cofferdam-server is not in " + dir,
		syscall.ENOEXEC: "exec format error",
	} {
		got := noServer(filepath.Join(dir, "cofferdam-server"), err)
		if !strings.Contains(got.Error(), want) || !strings.Contains(cofferdam.HintOf(got), "in one folder") {
			t.Errorf("%v (%s), want %s", got, cofferdam.HintOf(got), want)
		}
	}
}

func twoLinesAtLeast(errs string) bool {
	return strings.HasPrefix(errs, "cofferdam: ") && strings.Contains(errs, "\nhint: ")
}

func TestReference(t *testing.T) {
	root := newRoot(&app{System: ThisSystem()})
	files, err := reference(root)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	eachCommand(root, func(c *cobra.Command) {
		if hiddenCommand(c) {
			return
		}
		pages++
		page := string(files["man/man1/"+strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"])
		for _, part := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH EXAMPLES\n", ".SH EXIT STATUS\n"} {
			if !strings.Contains(page, part) {
				t.Errorf("the page of %s lacks %q", c.CommandPath(), part)
			}
		}
		if !strings.Contains(string(files["reference/command-line.md"]), "\n## "+c.CommandPath()+"\n") {
			t.Errorf("the reference lacks %s", c.CommandPath())
		}
	})
	for _, name := range []string{"completion/cofferdam.bash", "completion/_cofferdam", "completion/cofferdam.fish", "completion/cofferdam.ps1", "systemd/cofferdam.service", "systemd/cofferdam-keeper.service"} {
		if len(files[name]) == 0 {
			t.Errorf("%s is missing or empty", name)
		}
	}
	if strings.Contains(string(files["reference/command-line.md"]), "debug-person") {
		t.Error("a debug knob is documented")
	}
	b := &bench{t: t, env: map[string]string{}}
	dir := t.TempDir()
	b.good("debug", "reference", dir)
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs between two runs, or: %v", name, err)
		}
	}
	if code, _, errs := b.run("debug", "reference", "/proc/nope"); code != 2 || !twoLines(errs) {
		t.Errorf("a folder that cannot be made: exit %d %s", code, errs)
	}
	if out, err := exec.Command("bash", "-n", filepath.Join(dir, "completion/cofferdam.bash")).CombinedOutput(); err != nil {
		t.Errorf("completion for bash: %v %s", err, out)
	}
	if man, err := exec.LookPath("man"); err == nil {
		cmd := exec.Command(man, "--warnings", "-l", filepath.Join(dir, "man/man1/cofferdam-task-run.1"))
		cmd.Env = append(os.Environ(), "LC_ALL=C", "MANPAGER=cat")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "EXIT STATUS") {
			t.Errorf("manual page: %v\n%s", err, out)
		}
	}
}

// Completion offers live names, and stays silent without a server.
func TestCompletion(t *testing.T) {
	b := newBench(t)
	b.shop()
	if out := b.good("__complete", "task", "view", ""); !strings.HasPrefix(out, "t-1\tfix it\n") {
		t.Errorf("tasks: %q", out)
	}
	if out := b.good("__complete", "repo", "view", ""); !strings.HasPrefix(out, "shop\n") {
		t.Errorf("repositories: %q", out)
	}
	b.env["COFFERDAM_SERVER"] = "unix:/nonexistent"
	if code, out, _ := b.run("__complete", "task", "view", ""); code != 0 || strings.Contains(out, "no server") {
		t.Errorf("without a server: exit %d %q", code, out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := b.good("completion", shell); !strings.Contains(out, "cofferdam") {
			t.Errorf("%s: %q", shell, out)
		}
	}
}
