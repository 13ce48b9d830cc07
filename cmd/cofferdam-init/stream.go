package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
)

// firstBuffer is what a stream is read with until it fills it once: most
// commands say little, and hundreds may run.
const firstBuffer = 4 << 10

// outlet carries one output of a command to the host, as far as the host lets it.
type outlet struct {
	box    *box
	number uint32
	stream byte
	file   *os.File // nil: the command could not be started

	mu    sync.Mutex
	moved sync.Cond // allowed grew
	// allowed is the offset up to which the host takes output.
	allowed int64
	sent    int64 // only pump writes it
}

func newOutlet(b *box, number uint32, stream byte) *outlet {
	o := &outlet{box: b, number: number, stream: stream}
	o.moved.L = &o.mu
	return o
}

// allow lets output go up to offset to.
func (o *outlet) allow(to int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.allowed = max(o.allowed, to)
	o.moved.Broadcast()
}

// room waits until something may be sent and says how much.
func (o *outlet) room() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.allowed <= o.sent {
		o.moved.Wait()
	}
	return int(min(o.allowed-o.sent, guest.ChunkSize))
}

// lastCall ends pump as soon as the pipe is empty.
func (o *outlet) lastCall() {
	o.file.SetReadDeadline(time.Unix(1, 0))
}

// pump sends all output and its end.
func (o *outlet) pump() {
	defer o.box.send(guest.KindOutputEnd, o.number, []byte{o.stream})
	if o.file == nil {
		return
	}
	buf := make([]byte, firstBuffer)
	for {
		n, err := o.file.Read(buf[:min(len(buf), o.room())])
		o.sendChunk(buf[:n])
		if n == len(buf) && n < guest.ChunkSize {
			buf = make([]byte, guest.ChunkSize) // it has much to say
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.drain(buf)
			return
		}
		if err != nil {
			o.file.Close()
			return
		}
	}
}

// drain sends what the pipe holds now. What comes later is no part of the
// command; it is read and dropped, so that who still writes neither blocks nor
// dies of it.
func (o *outlet) drain(buf []byte) {
	o.file.SetReadDeadline(time.Time{})
	left := 0
	if c, err := o.file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	for left > 0 {
		n, err := o.file.Read(buf[:min(left, len(buf), o.room())])
		o.sendChunk(buf[:n])
		left -= n
		if err != nil {
			break
		}
	}
	go func() {
		defer o.file.Close()
		_, _ = io.Copy(io.Discard, o.file)
	}()
}

func (o *outlet) sendChunk(p []byte) {
	if len(p) == 0 {
		return
	}
	o.mu.Lock()
	o.sent += int64(len(p))
	o.mu.Unlock()
	o.box.send(guest.KindOutput, o.number, append([]byte{o.stream}, p...))
}

// inlet carries what the host sends to a command's standard input. It holds at
// most guest.Window bytes, because the host may not send more.
type inlet struct {
	box    *box
	number uint32

	mu      sync.Mutex
	moved   sync.Cond
	file    *os.File
	waiting []byte
	ended   bool // no more will come
	stopped bool // nobody reads
}

func newInlet(b *box, number uint32) *inlet {
	i := &inlet{box: b, number: number}
	i.moved.L = &i.mu
	return i
}

// attach gives the command's pipe to the inlet.
func (i *inlet) attach(w *os.File) {
	i.mu.Lock()
	i.file = w
	i.mu.Unlock()
	go i.pump(w)
}

func (i *inlet) put(p []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended || i.stopped || len(i.waiting)+len(p) > guest.Window {
		return
	}
	i.waiting = append(i.waiting, p...)
	i.moved.Broadcast()
}

func (i *inlet) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.moved.Broadcast()
}

// stop gives up: the command has ended.
func (i *inlet) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
	i.moved.Broadcast()
	if i.file != nil {
		i.file.Close()
	}
}

// pump writes what comes until the end, and tells the host how far it may go on.
// What a command that closed its input does not take is dropped.
func (i *inlet) pump(w *os.File) {
	defer w.Close()
	var taken int64
	var broken bool
	for {
		p := i.take()
		if p == nil {
			return
		}
		if !broken {
			_, err := w.Write(p)
			broken = err != nil
		}
		taken += int64(len(p))
		i.box.send(guest.KindStdinLimit, i.number, guest.AppendLimit(nil, guest.Limit{Offset: taken + guest.Window}))
	}
}

// take waits for input; nil is its end.
func (i *inlet) take() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.waiting) == 0 && !i.ended && !i.stopped {
		i.moved.Wait()
	}
	if len(i.waiting) == 0 || i.stopped {
		return nil
	}
	p := i.waiting
	i.waiting = nil
	return p
}
