package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"

	"cofferdam"
)

// lines sends r and calls see with each line of the answer until it ends. A
// line that carries a problem ends it with that error. Every line belongs to a
// stream that says itself when it is complete, so a broken connection is told
// as such.
func lines[T any](ctx context.Context, c *Client, path string, see func(T) error) error {
	resp, err := c.send(ctx, request{method: "GET", path: path})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(make([]byte, 0, 64<<10), maxLine)
	for scan.Scan() {
		var end struct {
			Problem *problem `json:"problem"`
		}
		if err := json.Unmarshal(scan.Bytes(), &end); err != nil {
			return c.broken(ctx, err)
		}
		if end.Problem != nil {
			return end.Problem.err()
		}
		var v T
		if err := json.Unmarshal(scan.Bytes(), &v); err != nil {
			return c.broken(ctx, err)
		}
		if err := see(v); err != nil {
			return err
		}
	}
	if err := scan.Err(); err != nil {
		return c.broken(ctx, err)
	}
	return nil
}

func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	reason := "the stream broke off"
	if errors.Is(err, bufio.ErrTooLong) {
		reason = "it sent a line that is too long"
	}
	return &cofferdam.Error{Op: "client.Follow", Kind: cofferdam.Unavailable, Subject: "server at " + c.server, Reason: reason, Hint: "follow again", Err: err}
}

// copyTo sends r and copies a raw answer. A cut answer is an error: a part is
// never taken for the whole.
func (c *Client) copyTo(ctx context.Context, path string, w io.Writer) error {
	resp, err := c.send(ctx, request{method: "GET", path: path})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		var pathErr interface{ Timeout() bool }
		if !errors.As(err, &pathErr) && !errors.Is(err, io.ErrUnexpectedEOF) && ctx.Err() == nil {
			return err // of w: a full disk, a closed pipe
		}
		return c.broken(ctx, err)
	}
	return nil
}
