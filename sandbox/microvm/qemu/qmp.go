package qemu

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxAnswer bounds a line of the monitor's, which has seen the guest.
const maxAnswer = 1 << 20

// qmp speaks QEMU's monitor protocol: JSON, a line for each message.
type qmp struct {
	mu   sync.Mutex
	conn *net.UnixConn
	in   *bufio.Scanner
}

// dialQMP takes the greeting and asks for nothing more than the protocol has.
func dialQMP(ctx context.Context, end *os.File) (*qmp, error) {
	c, err := net.FileConn(end)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a unix socket"), c.Close())
	}
	q := &qmp{conn: conn, in: bufio.NewScanner(conn)}
	q.in.Buffer(nil, maxAnswer)
	if err := q.conn.SetDeadline(deadline(ctx)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if !q.in.Scan() {
		return nil, errors.Join(fmt.Errorf("the monitor said nothing: %w", cmp.Or(q.in.Err(), io.EOF)), conn.Close())
	}
	if err := q.call(ctx, "qmp_capabilities", nil, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return q, nil
}

func deadline(ctx context.Context) time.Time {
	until := time.Now().Add(patience)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		return d
	}
	return until
}

// call runs one command; what it returns is decoded into result if not nil.
func (q *qmp) call(ctx context.Context, command string, arguments, result any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.exchange(ctx, command, arguments, nil, result)
}

// lend gives the monitor a descriptor under a name.
func (q *qmp) lend(ctx context.Context, name string, f *os.File) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = q.exchange(ctx, "getfd", map[string]string{"fdname": name}, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, inner)
}

// exchange sends one command and waits for its answer. Events between the two
// are not ours to act on: the machine's end shows in its process. mu is held.
func (q *qmp) exchange(ctx context.Context, command string, arguments any, rights []byte, result any) error {
	ask := map[string]any{"execute": command}
	if arguments != nil {
		ask["arguments"] = arguments
	}
	line, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	if err := q.conn.SetDeadline(deadline(ctx)); err != nil {
		return err
	}
	if _, _, err := q.conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return fmt.Errorf("telling the monitor %s: %w", command, err)
	}
	for q.in.Scan() {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(q.in.Bytes(), &answer); err != nil {
			return fmt.Errorf("the monitor's answer to %s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("the monitor refuses %s: %.300s", command, answer.Error.Desc)
		case answer.Return != nil && result != nil:
			return json.Unmarshal(answer.Return, result)
		case answer.Return != nil:
			return nil
		}
	}
	return fmt.Errorf("the monitor does not answer %s: %w", command, cmp.Or(q.in.Err(), ctx.Err(), io.EOF))
}

func (q *qmp) close() error { return q.conn.Close() }
