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
	line, err := readTyped(ctx, a.In)
	return strings.TrimSpace(line), err
}

// readTyped reads a line as it is typed, blanks and all. The end of the input, Ctrl-D, before
// anything is no line.
func readTyped(ctx context.Context, in io.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // ends with the line, or with the process: a read cannot be called back
		line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
		got <- answer{line, err}
	}()
	select {
	case r := <-got:
		if r.err != nil && r.line == "" {
			return "", cofferdamError("answer", "there was none", "type it and press Enter")
		}
		return strings.TrimRight(r.line, "\r\n"), nil
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
	fmt.Fprint(a.Out, prompt)
	line, err := readTyped(c.Context(), a.In) // not term.ReadPassword, which Ctrl-D does not end
	fmt.Fprintln(a.Out)
	return line, errors.Join(err, term.Restore(fd, before))
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
