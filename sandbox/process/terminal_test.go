package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// isJob has the test program run its argument in a one-off box, as a shell's job.
const isJob = "COFFERDAM_TEST_JOB"

// job is the inside of prompt.
func job() int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT)
	o := OneOff{
		Init: os.Getenv("COFFERDAM_TEST_INIT"), Workspace: os.Getenv(isJob), Env: []string{"PATH=/usr/bin:/bin", "TERM=dumb"},
		Argv: []string{"bash", "-c", os.Args[1]}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals,
	}
	r, err := o.Run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	if r.Signal == int(unix.SIGINT) { // as the command line does it
		signal.Reset(unix.SIGINT)
		_ = unix.Kill(os.Getpid(), unix.SIGINT)
		select {}
	}
	return r.Exit
}

// prompt is a shell at a terminal, and what it has shown.
type prompt struct {
	t    *testing.T
	near *os.File
	dir  string // where the shell is
	n    int

	mu    sync.Mutex
	shown string // guarded by mu; what was not expected yet
}

// newPrompt starts a shell in whose commands J runs its argument in a box.
func newPrompt(t *testing.T) *prompt {
	_, project := person(t)
	near, far := pseudoTerminal(t)
	p := &prompt{t: t, near: near, dir: project}
	sh := exec.Command("bash", "--norc", "--noprofile", "-i")
	sh.Env = []string{
		"PATH=/usr/bin:/bin", "TERM=dumb", "PS1=", "HISTFILE=", isJob + "=" + project, "COFFERDAM_TEST_INIT=" + initProgram(t), "J=/proc/self/exe",
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sh.Env[len(sh.Env)-1] = "J=" + self
	sh.Stdin, sh.Stdout, sh.Stderr, sh.Dir = far, far, far, project
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := near.Read(buf)
			p.mu.Lock()
			p.shown += string(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = sh.Process.Kill() // the terminal's end ends its jobs
		_ = sh.Wait()         // it was killed
		near.Close()
		<-read
	})
	p.enter("stty -echo; bind 'set enable-bracketed-paste off'")
	p.back()
	return p
}

func pseudoTerminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("needs pseudo terminals: " + err.Error())
	}
	n, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

// enter types a line, press a key.
func (p *prompt) enter(line string) { p.press(line + "\n") }

func (p *prompt) press(keys string) {
	p.t.Helper()
	if _, err := p.near.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// expect waits for text and forgets what came before it, which it returns.
func (p *prompt) expect(text string) string {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		before, after, ok := strings.Cut(p.shown, text)
		if ok {
			p.shown = after
			p.mu.Unlock()
			return before
		}
		shown := p.shown
		p.mu.Unlock()
		if time.Now().After(deadline) {
			p.t.Fatalf("%q is not shown, but %q", text, shown)
		}
	}
}

// resume brings the job to the foreground once all of it has stopped: the shell knows
// of its first process alone. It shows the job by its text, and what is typed before
// that it may read itself, together with fg.
func (p *prompt) resume(text string) {
	p.t.Helper()
	p.enter(`while ps -o stat= -p "$(pgrep -d, -g "$(jobs -p)")" | grep -qv '^T'; do sleep 0.05; done; echo settled-$((1 + 1))`)
	p.expect("settled-2")
	p.back()
	p.enter("fg")
	p.expect(text)
}

// back waits until the shell has the terminal again, and returns what was shown before.
func (p *prompt) back() string {
	p.t.Helper()
	p.n++
	p.enter(fmt.Sprintf("echo back-$((%d + 0))-", p.n))
	return p.expect(fmt.Sprintf("back-%d-", p.n))
}

// TestTerminalOfAJob is a command at a prompt: it has the terminal, hears what is
// typed, stops and goes on like every job of the shell.
func TestTerminalOfAJob(t *testing.T) {
	p := newPrompt(t)
	p.enter(`$J 'python3 -c "import os; print(\"front\", os.tcgetpgrp(0) == os.getpgrp() > 0)"'`)
	p.expect("front True")
	p.back()

	// Ctrl-C reaches it and what it started, and its answer is the exit code.
	p.enter(`$J 'trap "echo heard; exit 7" INT; (trap "echo child" INT; echo ready; while :; do sleep 0.05; done)'; echo code $?-`)
	p.expect("ready")
	p.press("\x03")
	p.expect("child")
	p.press("\x1c") // the child goes on, SIGQUIT ends it
	p.expect("heard")
	p.expect("code 7-")
	p.back()

	// Ctrl-Z stops it and gives the shell the terminal; fg gives it back.
	p.enter(`$J 'echo ready; read x; echo "got $x"'; echo code $?-`)
	p.expect("ready")
	p.press("\x1a")
	p.expect("Stopped")
	p.expect("code 147-")
	p.back()
	p.resume("read x")
	p.enter("hello")
	p.expect("got hello")
	p.back()

	// In the background it cannot read until it is called.
	p.enter(`$J 'echo ready; read x; echo "got $x"' &`)
	p.expect("ready")
	p.enter(`until jobs | grep -q Stopped; do sleep 0.05; done; echo waits-$((1 + 1))`)
	p.expect("waits-2")
	p.resume("read x")
	p.enter("there")
	p.expect("got there")
	p.back()

	// Its window has the size that it gets.
	p.enter(`$J 'trap "stty size" WINCH; trap exit INT; echo ready; while :; do sleep 0.05; done'`)
	p.expect("ready")
	if err := unix.IoctlSetWinsize(int(p.near.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 101}); err != nil {
		t.Fatal(err)
	}
	p.expect("33 101")
	p.press("\x03")
	p.back()

	// A shell in it has jobs of its own.
	p.enter(`$J 'exec bash --norc --noprofile -i'`)
	p.enter("(echo asleep-$((1 + 1)); exec sleep 300)")
	p.expect("asleep-2")
	p.press("\x1a")
	p.expect("Stopped")
	p.enter("kill -9 %1; disown -a; exit 5")
	p.enter("echo code $?-")
	p.expect("code 5-")
	p.back()
}

// TestTerminalOfAScript: the terminal stays with a caller that is not alone, so
// that its neighbours hear Ctrl-C too, until the command reads from it.
func TestTerminalOfAScript(t *testing.T) {
	p := newPrompt(t)
	p.enter(`bash -c '$J "echo ready; sleep 300"; echo survived-$((1 + 1))'`)
	p.expect("ready")
	p.press("\x03")
	if shown := p.back(); strings.Contains(shown, "survived-2") {
		t.Errorf("the script did not hear Ctrl-C: %q", shown)
	}
	// Stopping stops the script as well.
	p.enter(`bash -c '$J "echo ready; read x; echo got \$x"; echo then-$((1 + 1))'`)
	p.expect("ready")
	p.press("\x1a")
	p.expect("Stopped")
	p.back()
	p.resume("bash -c")
	p.enter("word")
	p.expect("got word")
	p.expect("then-2")
	p.back()
	// So does stopping while the terminal is the script's, whether the command
	// heeds it or not, and again.
	for _, command := range []string{"", `trap \"\" TSTP; `} {
		p.enter(`bash -c '$J "` + command + `echo ready; until test -e on; do sleep 0.05; done; rm on; echo over"; echo then-$((1 + 1))'`)
		p.expect("ready")
		for range 2 {
			p.press("\x1a")
			p.expect("Stopped")
			p.back()
			p.resume("bash -c")
		}
		if err := os.WriteFile(filepath.Join(p.dir, "on"), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		p.expect("over")
		p.expect("then-2")
		p.back()
	}
	// In a pipeline it reads what is typed, and its reader lives on.
	p.enter(`$J 'read x; echo "got $x"' | (cat; echo end-$((1 + 1)))`)
	p.enter("typed")
	p.expect("got typed")
	p.expect("end-2")
	p.back()
}

// TestSignalsEndAtTheBox: a command that signals its own group, or everything
// that it can, reaches nothing outside, at a terminal or not, whatever Landlock
// the kernel has.
func TestSignalsEndAtTheBox(t *testing.T) {
	_, project := person(t)
	const groups = `python3 -c "import os; print('groups', os.getpgrp(), os.getsid(0))"`
	// Groups of the host have the number 0 in a box.
	if got, _ := run(t, OneOff{Init: initProgram(t), Workspace: project}, groups); got != "groups 1 1\n" {
		t.Errorf("without a terminal: %q", got)
	}
	p := newPrompt(t)
	p.enter(`$J '` + strings.ReplaceAll(groups, "'", `\"`) + `'`)
	p.expect("groups 1 0")
	p.back()
	const neighbour = `bash -c 'sleep 4343 & n=$!; trap "" USR1; %s; while read -r _ _ state _ </proc/$n/stat; [ "$state" = R ]; do :; done; echo neighbour $state-; kill -9 $n'`
	for _, target := range []string{"0", "-1"} {
		if target == "0" { // control: without a box the neighbour is ended
			p.enter(fmt.Sprintf(neighbour, `bash -c "kill -USR1 0"; wait $n`))
			p.expect("neighbour -")
			p.back()
		}
		p.enter(fmt.Sprintf(neighbour, `$J "kill -USR1 `+target+`"`))
		p.expect("neighbour S-")
		p.back()
	}
}

// TestKilledWhileStopped: a box without a terminal that stands still ends when
// what made it is killed, and goes on when it goes on.
func TestKilledWhileStopped(t *testing.T) {
	_, project := person(t)
	for _, end := range []unix.Signal{unix.SIGKILL, unix.SIGCONT} {
		_ = os.Remove(filepath.Join(project, "go"))
		cmd := exec.Command(os.Args[0], "echo ready; until test -e go; do sleep 0.02; done")
		cmd.Env = append(os.Environ(), isJob+"="+project, "COFFERDAM_TEST_INIT="+initProgram(t))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		children, err := exec.Command("pgrep", "-P", strconv.Itoa(cmd.Process.Pid)).Output()
		if err != nil {
			t.Fatal(err)
		}
		init := strings.TrimSpace(string(children))
		become := func(what string, ok func(state string) bool) {
			t.Helper()
			state := ""
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				data, _ := os.ReadFile("/proc/" + what + "/stat") // gone is a state too
				_, state, _ = strings.Cut(string(data), ") ")
				if ok(state) {
					return
				}
			}
			t.Fatalf("process %s is %.20q", what, state)
		}
		stopped := func(s string) bool { return strings.HasPrefix(s, "T") }
		if err := cmd.Process.Signal(unix.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		become(strconv.Itoa(cmd.Process.Pid), stopped)
		inside, err := exec.Command("pgrep", "-P", init).Output()
		if err != nil {
			t.Fatal(err)
		}
		become(strings.TrimSpace(string(inside)), stopped)
		if err := os.WriteFile(filepath.Join(project, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if end == unix.SIGCONT && err != nil {
			t.Errorf("%v: %s", err, said.String())
		}
		become(init, func(s string) bool { return s == "" || strings.HasPrefix(s, "Z") })
	}
}
