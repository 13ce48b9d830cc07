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

// secretLine asks for a line that is not shown while it is typed.
func (a *app) secretLine(c *cobra.Command, prompt string) (string, error) {
	fmt.Fprint(a.Out, prompt)
	f, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) { // a descriptor fits an int
		return a.readLine(c.Context())
	}
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() { // ends with the line, or with the process
		line, err := term.ReadPassword(fd)
		got <- answer{line, err}
	}()
	select {
	case r := <-got:
		fmt.Fprintln(a.Out)
		return string(r.line), r.err
	case <-c.Context().Done():
		return "", errors.Join(context.Cause(c.Context()), term.Restore(fd, before))
	}
}
