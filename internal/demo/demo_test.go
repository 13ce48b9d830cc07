package demo

import (
	"bytes"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/agent/rehearsal"
)

const canary = "sk-canary-of-the-real-key-0123456789"

// TestRealKey plays with a "real" model, whose place a server of the test's own
// takes: it accepts nothing but the canary. The key is read from the environment
// once. While the demo runs, no process but this one has it in its environment
// or its arguments; afterwards no file of the demo has it, the vault's included.
//
// Control: a process that is given the key in its environment is found.
func TestRealKey(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("needs root and takes its time: server and keeper run as root in this version")
	}
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"cofferdam", "cofferdam-server", "cofferdam-engine"} {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			t.Skip("needs the programs: run make build first")
		}
	}
	t.Setenv("OPENAI_API_KEY", canary)
	t.Setenv("ANTHROPIC_API_KEY", "")
	script, err := rehearsal.Parse(strings.NewReader("key " + canary + `
turn 1
say I see.
bash sed -i 's/-gt 10000/-ge 10000/' total.sh && git commit -qam 'total: from exactly 10,000 cents on'; env
turn 2
say The discount is given.
`))
	if err != nil {
		t.Fatal(err)
	}
	provider := httptest.NewServer(script.Handler())
	defer provider.Close()

	var out, progress bytes.Buffer
	s := &story{Options: Options{Agent: "loop", Model: Real, Programs: bin, Out: &out, Progress: &progress, Keep: true}, url: provider.URL}
	defer func() { os.RemoveAll(s.dir) }()
	found, looked := watch(t)
	if err := s.play(t.Context()); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), progress.String())
	}
	if list := found(); len(list) > 0 || looked() < 10 {
		t.Errorf("of %d looks, some saw the key: %q", looked(), list)
	}
	if s.provider != "openai" || os.Getenv("OPENAI_API_KEY") != "" {
		t.Errorf("provider %q; the key is still in the environment: %v", s.provider, os.Getenv("OPENAI_API_KEY") != "")
	}
	if strings.Contains(out.String()+progress.String(), canary) || !strings.Contains(out.String(), "agent loop, model of openai") {
		t.Errorf("printed:\n%s", out.String())
	}
	if files := containing(t, s.dir, canary); len(files) > 0 {
		t.Errorf("the key is in %q", files)
	}
	if files := containing(t, s.dir, s.canary); len(files) != 1 {
		t.Errorf("the host's secret, which is in one file, was found in %q", files)
	}
}

// watch looks at the processes of this machine, again and again, until found is
// called, which returns those that had the canary.
func watch(t *testing.T) (found func() []string, looked func() int64) {
	var looks atomic.Int64
	stop, done := make(chan struct{}), make(chan []string)
	go func() {
		seen := map[string]bool{}
		for {
			for _, name := range holders() {
				seen[name] = true
			}
			looks.Add(1)
			select {
			case <-stop:
				var list []string
				for name := range seen {
					list = append(list, name)
				}
				done <- list
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	var list []string
	stopped := false
	found = func() []string {
		if !stopped {
			stopped = true
			close(stop)
			list = <-done
		}
		return list
	}
	t.Cleanup(func() { found() })
	return found, looks.Load
}

// holders are the other processes that have the canary in their environment or
// arguments.
func holders() []string {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	self := "/proc/" + strconv.Itoa(os.Getpid())
	var list []string
	for _, f := range files {
		dir := filepath.Dir(f)
		for _, name := range []string{"environ", "cmdline"} {
			text, err := os.ReadFile(filepath.Join(dir, name)) // a process may be gone
			if err == nil && dir != self && bytes.Contains(text, []byte(canary)) {
				list = append(list, dir+"/"+name)
			}
		}
	}
	return list
}

// containing are the files below dir that contain text.
func containing(t *testing.T, dir, text string) []string {
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestWatch is the control of TestRealKey.
func TestWatch(t *testing.T) {
	cmd := sleeper(t, "KEY="+canary)
	found, _ := watch(t)
	time.Sleep(100 * time.Millisecond)
	if list := found(); len(list) == 0 || !strings.Contains(strings.Join(list, " "), strconv.Itoa(cmd)+"/environ") {
		t.Errorf("a process that has the key was not found: %q", list)
	}
}

// TestCast: who plays with which model, and the two lines of what cannot be.
func TestCast(t *testing.T) {
	for _, c := range []struct{ agent, model, env, provider, reason string }{
		{"loop", Rehearsal, "", "anthropic", ""},
		{"command", Rehearsal, "", "", ""},
		{"gemini", Rehearsal, "OPENAI_API_KEY", "gemini", ""},
		{"loop", Real, "GEMINI_API_KEY", "gemini", ""},
		{"codex", Real, "OPENAI_API_KEY", "openai", ""},
		{"codex", Real, "ANTHROPIC_API_KEY", "", "no key"},
		{"command", Real, "ANTHROPIC_API_KEY", "", "asks no model"},
		{"eve", Rehearsal, "", "", "the demo plays"},
		{"loop", "best", "", "", "rehearsal and real"},
	} {
		for _, name := range variables {
			t.Setenv(name, "")
		}
		if c.env != "" {
			t.Setenv(c.env, canary)
		}
		s := &story{Options: Options{Agent: c.agent, Model: c.model}}
		err := s.cast()
		if c.reason == "" && (err != nil || s.provider != c.provider || (s.key == canary) != (c.model == Real)) {
			t.Errorf("%+v: provider %q, %v", c, s.provider, err)
		}
		if c.reason != "" && (cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), canary)) {
			t.Errorf("%+v: %v", c, err)
		}
		if c.reason == "" && c.env != "" && os.Getenv(c.env) != "" {
			t.Errorf("%+v: the key is still in the environment", c)
		}
	}
}

// sleeper starts a process with a variable in its environment.
func sleeper(t *testing.T, env string) int {
	cmd := exec.Command("sleep", "30")
	cmd.Env = []string{env}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
