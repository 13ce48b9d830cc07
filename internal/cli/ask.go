package cli

import (
	"bufio"
	"context"
	"io"
	"strings"
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
