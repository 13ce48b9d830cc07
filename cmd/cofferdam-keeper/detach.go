package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"cofferdam"
)

// readyWord is what a keeper in the background says when it serves.
const readyWord = "ready"

// readyTime is how long it may take: ending what an earlier keeper left is
// most of it.
const readyTime = 2 * time.Minute

// background starts a keeper that outlives this process and its terminal, and
// returns once it serves.
func (s settings) background(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", s.args("--ready", "3")...)
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", minimalEnv(), []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(cmd.Start(), w.Close())
	if err != nil {
		return fmt.Errorf("starting keeper in the background: %w", err)
	}
	return hear(ctx, r, cmd.Process)
}

// hear waits for what a keeper in the background reports on r.
func hear(ctx context.Context, r io.Reader, keeper *os.Process) error {
	answer := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, 8<<10)) // the end of the pipe is an answer too
		answer <- string(text)
	}()
	select {
	case text := <-answer:
		if text == readyWord {
			return keeper.Release()
		}
		return failed(text)
	case <-ctx.Done():
		return errors.Join(ctx.Err(), keeper.Kill())
	case <-time.After(readyTime):
		return errors.Join(failed("it does not answer"), keeper.Kill())
	}
}

// failed turns what a keeper reported into this process's own error.
func failed(text string) error {
	what, hint, _ := strings.Cut(strings.TrimSpace(text), "\nhint: ")
	what = strings.TrimPrefix(what, "cofferdam-keeper: ")
	if what == "" {
		what = "it ended without a word"
	}
	return &cofferdam.Error{
		Op: "keeper.background", Kind: cofferdam.Unavailable, Subject: "starting keeper in the background",
		Reason: what, Hint: hint,
	}
}

// maxLog is where the log starts anew; one older file is kept.
const maxLog = 8 << 20

// logFile is a log that cannot grow without bound.
type logFile struct {
	path string

	mu   sync.Mutex
	f    *os.File // guarded by mu
	size int64    // guarded by mu
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write appends one record.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > maxLog {
		if err := errors.Join(l.f.Close(), os.Rename(l.path, l.path+".1"), l.open()); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
