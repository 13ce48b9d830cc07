// Package engine starts, supervises and dials the durable engine that runs
// workflows: cofferdam-engine as a child process on loopback, closed to other
// local users by mutual TLS with keys made at every start and kept in memory.
//
// It never believes the engine about a task, and never lets it outlive this
// process: the child ends when its standard input closes. The invariant: while
// an Engine is open there is one child or one on its way, and a client made by
// Dial finds each new one by itself.
package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"cofferdam"
)

// Namespace is the engine's name for all that is ours.
const Namespace = "cofferdam"

// Bounds of supervision. A start takes 0.6 to 2.4 s on two idle processors, ten
// times that on loaded ones; twenty starts in a row that fail will not succeed.
const (
	startLimit   = 90 * time.Second
	stopLimit    = 10 * time.Second
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
	freshAfter   = 3 // failed starts in a row before the file is dropped
	giveUpAfter  = 20
	exitTaken    = 3 // of the program: another engine holds the folder
	maxLogLine   = 64 << 10
)

// Options is what an Engine is made from.
type Options struct {
	Program string // path of cofferdam-engine
	Dir     string // folder of its own, absolute
	Log     *slog.Logger
	// Restarted is called after each start but the first, on a goroutine that
	// Close waits for. With fresh the engine has forgotten everything; the
	// caller starts its workflows again either way. May be nil.
	Restarted func(ctx context.Context, fresh bool)
}

// Engine is a supervised child.
type Engine struct {
	o      Options
	keys   *keyring
	cancel context.CancelFunc
	done   chan struct{} // closed when supervision has ended

	mu      sync.Mutex
	address string        // of the present child; "" while there is none. Guarded by mu
	moved   chan struct{} // closed when address changes. Guarded by mu
	child   *child        // guarded by mu
	err     error         // why supervision gave up. Guarded by mu
}

// Start starts the engine and returns once it serves clients. ctx bounds the
// start only; Close ends the engine.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("starting engine: folder %q is not absolute", o.Dir)
	}
	keys, err := newKeyring()
	if err != nil {
		return nil, fmt.Errorf("making keys of the engine: %w", err)
	}
	e := &Engine{o: o, keys: keys, done: make(chan struct{}), moved: make(chan struct{})}
	c, err := e.first(ctx)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel = cancel
	e.set(c)
	go e.supervise(life, c)
	return e, nil
}

// first starts the engine with a few tries: its port may be taken at the wrong
// moment, its file may be broken. A folder that another engine holds is final.
func (e *Engine) first(ctx context.Context) (*child, error) {
	var err error
	for try := 0; try <= freshAfter; try++ {
		var c *child
		if c, err = e.launch(ctx, try == freshAfter); err == nil {
			return c, nil
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitTaken {
			return nil, &cofferdam.Error{Op: "engine.Start", Kind: cofferdam.Conflict, Subject: "engine folder " + e.o.Dir, Reason: "another engine uses it", Hint: "stop the other server, or give this one another state folder", Err: err}
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || ctx.Err() != nil {
			break
		}
		e.o.Log.WarnContext(ctx, "the engine did not start", slog.Any("error", err))
		if errors.Is(err, errSlow) { // a new file is all that may help
			try = max(try, freshAfter-1)
		}
	}
	return nil, &cofferdam.Error{Op: "engine.Start", Kind: cofferdam.Unavailable, Subject: "durable engine", Reason: err.Error(), Hint: "see that " + e.o.Program + " is there and that the disk is not full", Err: err}
}

// supervise replaces a child that ended, until Close.
func (e *Engine) supervise(ctx context.Context, c *child) {
	defer close(e.done)
	var told sync.WaitGroup
	defer told.Wait()
	failed, pause := 0, firstPause
	for {
		born := time.Now()
		select {
		case <-ctx.Done():
			c.stop()
			return
		case <-c.ended:
		}
		e.set(nil)
		e.o.Log.WarnContext(ctx, "the engine ended and is started again", slog.Any("error", c.err))
		if time.Since(born) > longestPause { // it ran well before
			failed, pause = 0, firstPause
		}
		for c = nil; c == nil; failed++ {
			if failed >= giveUpAfter {
				e.giveUp(ctx)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, longestPause)
			fresh := failed >= freshAfter
			next, err := e.launch(ctx, fresh)
			if err != nil {
				e.o.Log.WarnContext(ctx, "the engine did not start", slog.Any("error", err), slog.Int("failed", failed+1))
				continue
			}
			c = next
			e.set(c)
			if e.o.Restarted != nil {
				told.Go(func() { e.o.Restarted(ctx, fresh) })
			}
		}
	}
}

func (e *Engine) giveUp(ctx context.Context) {
	e.mu.Lock()
	e.err = &cofferdam.Error{Op: "engine.supervise", Kind: cofferdam.Unavailable, Subject: "durable engine", Reason: fmt.Sprintf("did not start %d times in a row", giveUpAfter), Hint: "see the log for its reason, then start the server again"}
	close(e.moved)
	e.moved = make(chan struct{})
	e.mu.Unlock()
	e.o.Log.ErrorContext(ctx, "the engine is given up", slog.Int("starts", giveUpAfter))
}

func (e *Engine) set(c *child) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.child, e.address = c, ""
	if c != nil {
		e.address = c.address
	}
	close(e.moved)
	e.moved = make(chan struct{})
}

// Done is closed when nobody looks after the engine any more: after Close, or
// when it was given up. Err then says why.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err is why the engine was given up; nil if it was not.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// PID is the process id of the present child, 0 while there is none.
func (e *Engine) PID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.child == nil {
		return 0
	}
	return e.child.cmd.Process.Pid
}

// Close ends the child and waits for it.
func (e *Engine) Close() error {
	e.cancel()
	<-e.done
	return nil
}

// dial connects to the present child, or waits for the next one.
func (e *Engine) dial(ctx context.Context) (net.Conn, error) {
	for {
		e.mu.Lock()
		address, moved, err := e.address, e.moved, e.err
		e.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if address != "" {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// child is one run of the program.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
	ended   chan struct{} // closed after Wait
	err     error         // of Wait; read after ended
}

// settings is the program's first line; cmd/cofferdam-engine specifies it.
type settings struct {
	Dir         string `json:"dir"`
	Namespace   string `json:"namespace"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Authority   string `json:"authority"`
	Fresh       bool   `json:"fresh"`
}

// launch runs the program and waits until it is ready.
func (e *Engine) launch(ctx context.Context, fresh bool) (*child, error) {
	cmd := exec.Command(e.o.Program)
	cmd.Env = []string{} // nothing of ours: no proxy, no telemetry, no token
	cmd.Dir = "/"
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	setProcess(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("running %s: %w", e.o.Program, err)
	}
	c := &child{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	logged := make(chan string, 1)
	go func() { logged <- e.copyLog(stderr) }()
	ready := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		ready <- readReady(stdout)
	}()
	go func() { // the pipes are read to their end before Wait closes them
		<-read
		last := <-logged
		c.err = cmd.Wait()
		if c.err != nil && last != "" {
			c.err = fmt.Errorf("%w: %s", c.err, last)
		}
		close(c.ended)
	}()
	s := settings{
		Dir: e.o.Dir, Namespace: Namespace, Fresh: fresh,
		Certificate: e.keys.serverCert, Key: e.keys.serverKey, Authority: e.keys.authority,
	}
	if err := json.NewEncoder(stdin).Encode(s); err != nil {
		c.stop()
		return nil, fmt.Errorf("handing settings to the engine: %w", errors.Join(err, c.err))
	}
	return c, c.await(ctx, ready)
}

// errSlow says that the program runs and does not become ready.
var errSlow = errors.New("it was not ready")

// await waits for the ready line, the child's end or the end of patience.
func (c *child) await(ctx context.Context, ready <-chan string) error {
	t := time.NewTimer(startLimit)
	defer t.Stop()
	var err error
	select {
	case c.address = <-ready:
		if c.address != "" {
			return nil
		}
		<-c.ended
		if c.err == nil {
			return errors.New("it ended at its start without saying why")
		}
		return fmt.Errorf("it ended at its start: %w", c.err)
	case <-t.C:
		err = fmt.Errorf("%w after %s", errSlow, startLimit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.stop()
	return err
}

// stop closes the child's standard input, then kills it if that was not enough.
func (c *child) stop() {
	_ = c.stdin.Close()
	t := time.NewTimer(stopLimit)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// readReady returns the address of the ready line, "" if there is none, and
// reads on to the end so that the child never waits for us.
func readReady(r io.Reader) string {
	in := bufio.NewReaderSize(r, maxLogLine)
	line, err := in.ReadSlice('\n')
	var said struct{ Address string }
	if err == nil && json.Unmarshal(line, &said) != nil {
		said.Address = ""
	}
	if said.Address == "" {
		_, _ = io.Copy(io.Discard, in)
		return ""
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	return said.Address
}

// copyLog hands the child's log lines on and returns the last one.
func (e *Engine) copyLog(r io.Reader) string {
	in, last := bufio.NewReaderSize(r, maxLogLine), ""
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 1 {
			last = string(line[:min(len(line)-1, maxErrText)])
			e.o.Log.Debug("engine", slog.String("line", last))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return last
		}
	}
}

// maxErrText bounds what an error carries of the child's last words.
const maxErrText = 1 << 10
