package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// readLine reads one line a person types. Ctrl-C ends the waiting.
func (a *app) readLine(ctx context.Context) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // ends with the line, or with the process: a read cannot be called back
		line, err := bufio.NewReader(io.LimitReader(a.In, 4096)).ReadString('\n')
		got <- answer{line, err}
	}()
	select {
	case r := <-got:
		if r.err != nil && r.line == "" {
			return "", cofferdamError("answer", "there was none", "type it and press Enter")
		}
		return strings.TrimSpace(r.line), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// secretLine asks for a line that is not shown while it is typed. The terminal is
// quiet before it asks: who types at once, or pastes, is not shown either.
func (a *app) secretLine(c *cobra.Command, prompt string) (string, error) {
	f, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) { // a descriptor fits an int
		fmt.Fprint(a.Out, prompt)
		return a.readLine(c.Context())
	}
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err == nil {
		err = hush(fd)
	}
	if err != nil {
		return "", err
	}
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	fmt.Fprint(a.Out, prompt)
	go func() { // ends with the line, or with the process
		line, err := term.ReadPassword(fd) // it leaves the terminal as quiet as it was
		got <- answer{line, err}
	}()
	select {
	case r := <-got:
		fmt.Fprintln(a.Out)
		return string(r.line), errors.Join(r.err, term.Restore(fd, before))
	case <-c.Context().Done():
		return "", errors.Join(context.Cause(c.Context()), term.Restore(fd, before))
	}
}

// hush has a terminal show nothing of what is typed.
func hush(fd int) error {
	modes, err := unix.IoctlGetTermios(fd, readModes)
	if err != nil {
		return err
	}
	modes.Lflag &^= unix.ECHO | unix.ECHONL
	return unix.IoctlSetTermios(fd, setModes, modes)
}
