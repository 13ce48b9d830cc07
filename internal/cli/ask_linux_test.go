package cli

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// quiet is where a prompt goes; it looks at the terminal when the prompt comes,
// and answers it.
type quiet struct {
	bytes.Buffer
	t         *testing.T
	near, far *os.File
	prompts   int
}

func (q *quiet) Write(p []byte) (int, error) {
	if strings.TrimSpace(string(p)) != "" {
		q.prompts++
		modes, err := unix.IoctlGetTermios(int(q.far.Fd()), readModes)
		if err != nil || modes.Lflag&unix.ECHO != 0 || modes.Lflag&unix.ICANON == 0 {
			q.t.Errorf("the terminal shows what is typed when it is asked: %v %v", modes, err)
		}
		if _, err := q.near.WriteString("a secret\n"); err != nil {
			q.t.Error(err)
		}
	}
	return q.Buffer.Write(p)
}

// A password that is typed or pasted the moment it is asked for is not shown.
func TestPasswordIsAskedForInTheDark(t *testing.T) {
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	n, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	far, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	before, err := unix.IoctlGetTermios(int(far.Fd()), readModes)
	if err != nil {
		t.Fatal(err)
	}
	out := &quiet{t: t, near: near, far: far}
	a := &app{System: System{In: far, Out: out}}
	c := &cobra.Command{}
	c.SetContext(t.Context())
	line, err := a.secretLine(c, "Password: ")
	if err != nil || line != "a secret" || out.prompts != 1 || out.String() != "Password: \n" {
		t.Errorf("%q %v %d %q", line, err, out.prompts, out.String())
	}
	after, err := unix.IoctlGetTermios(int(far.Fd()), readModes)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
}
