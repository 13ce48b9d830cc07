package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestStraysAreKnown: a driver ends what an earlier one of its folder left, and
// nobody whose number is the same.
func TestStraysAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		text func(pid int, began string) string
		ends bool
	}{
		"what was left":            {func(pid int, began string) string { return fmt.Sprintf("%d %s", pid, began) }, true},
		"another of that number":   {func(pid int, began string) string { return fmt.Sprintf("%d 1%s", pid, began) }, false},
		"of another start of host": {func(pid int, began string) string { return fmt.Sprintf("%d %sx", pid, began) }, false},
		"half of a line":           {func(pid int, _ string) string { return fmt.Sprint(pid) }, false},
		"all there are":            {func(_ int, began string) string { return "-1 " + began }, false},
		"nothing":                  {func(int, string) string { return "" }, false},
		"nonsense":                 {func(int, string) string { return "\x00 \xff\n" }, false},
	} {
		o := options(t)
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // it is killed, by one or the other
		}()
		began, err := beginOf(cmd.Process.Pid)
		if err == nil {
			err = os.MkdirAll(filepath.Join(o.Root, "boxes", "b-1"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(o.Root, "boxes", "b-1", pidFile), []byte(c.text(cmd.Process.Pid, began)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := beginOf(cmd.Process.Pid); (err != nil) != c.ends {
			t.Errorf("%s: it has ended: %v", name, err)
		}
		_ = cmd.Process.Kill() // it may have ended
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
