package main

import (
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
)

// standby is the process of the box's first command, made before there is one, as
// guest.Config.Standby says. It waits with that command's user, group, mark, session,
// limits and pipes, and becomes what is asked for first, or goes. A kernel in user
// space takes some 3 ms to make a process in, and this is most of them.
type standby struct {
	c      *command // number 1
	pid    int
	say    int // descriptor to tell it by
	failed int // descriptor to hear by why it could not
}

// standBy makes one, before the first word to the host.
func (b *box) standBy() error {
	c := newCommand(b, 1)
	theirs, err := c.pipes(false)
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	var say, failed [2]int
	if err := unix.Pipe2(say[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(say[0])
	if err := unix.Pipe2(failed[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(failed[1])
	attr := c.attributes(theirs)
	attr.Dir, attr.Files = "/", append(attr.Files, uintptr(say[0]), uintptr(failed[1]))
	pid, err := b.forkExec(b.config.Standby, []string{b.config.Standby}, attr)
	if err != nil {
		return err
	}
	c.standby = &standby{c: c, pid: pid, say: say[1], failed: failed[0]}
	b.standby = c.standby
	return nil
}

// first tells the process that stands by to become what s asks for, and returns its
// command; nil if there is none, or it cannot be that.
func (b *box) first(number uint32, s guest.Start) *command {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.standby
	if w == nil {
		return nil
	}
	b.standby = nil
	if paths := candidates(s); number == w.c.number && !s.Stdin && len(paths) > 0 {
		if told := becoming(paths[0], s); told != nil {
			w.c.began = time.Now()
			b.byPID[w.pid] = w.c // before it can end
			if n, err := unix.Write(w.say, told); err == nil && n == len(told) {
				return w.c
			}
			delete(b.byPID, w.pid)
		}
	}
	w.dismiss()
	w.mute()
	return nil
}

// becoming is what a standby reads; nil if it is too much, or no text of C.
func becoming(path string, s guest.Start) []byte {
	const head = 5 * 8
	lists := head + 8*(len(s.Argv)+1+len(s.Env)+1)
	words := make([]byte, 0, lists)
	var text []byte
	whole := true
	put := func(word uint64) { words = binary.LittleEndian.AppendUint64(words, word) }
	place := func(v string) uint64 {
		at := guest.StandbyAt + lists + len(text)
		whole = whole && !strings.Contains(v, "\x00")
		text = append(append(text, v...), 0)
		return uint64(at)
	}
	put(0) // the length, once it is known
	put(place(s.Dir))
	put(place(path))
	put(guest.StandbyAt + head)
	put(guest.StandbyAt + uint64(head+8*(len(s.Argv)+1)))
	for _, list := range [][]string{s.Argv, s.Env} {
		for _, v := range list {
			if len(text) > guest.StandbyRoom {
				return nil
			}
			put(place(v))
		}
		put(0)
	}
	if !whole || lists+len(text) > guest.StandbyRoom {
		return nil
	}
	binary.LittleEndian.PutUint64(words, uint64(lists+len(text)))
	return append(words, text...)
}

// became waits until the process is what it was told to be; 0 if it could not, which
// is as if it had never been: the command is made anew, and that says why.
func (w *standby) became() (pid int) {
	defer w.dismiss()
	var why [4]byte
	n, err := unix.Read(w.failed, why[:])
	for err == unix.EINTR {
		n, err = unix.Read(w.failed, why[:])
	}
	if n == 0 && err == nil {
		return w.pid
	}
	b := w.c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byPID[w.pid] != w.c { // somebody ended it, and it was reaped as the command
		return w.pid
	}
	delete(b.byPID, w.pid)
	w.mute()
	return 0
}

// mute closes our ends of its output, of which there is none.
func (w *standby) mute() {
	for _, o := range w.c.outlets[1:] {
		o.file.Close()
		o.file = nil
	}
}

// dismiss has nothing more to say to the process: one that waits ends.
func (w *standby) dismiss() {
	unix.Close(w.say)
	unix.Close(w.failed)
}
