package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// LockFile is the file in the state folder that a keeper has locked. It says which
// process that is, where it serves, and whether it does so yet.
const LockFile = "lock"

// What a keeper writes into its lock: it begins, then it serves. Both words have
// the same length, so that one takes the place of the other at once.
const (
	holderFormat = "process %d\n%s %s\n"
	beginsWord   = "begins"
	servesWord   = "serves"
)

// Begin writes into a keeper's lock that this process has it and is about to serve
// at socket. serves is for when it does.
func Begin(lock *os.File, socket string) (serves func() error, err error) {
	text := fmt.Sprintf(holderFormat, os.Getpid(), beginsWord, socket)
	if err := errors.Join(lock.Truncate(0), write(lock, text, 0)); err != nil {
		return nil, err
	}
	at := int64(len(text) - len(socket) - 1 - len(beginsWord) - 1)
	return func() error { return write(lock, servesWord, at) }, nil
}

func write(f *os.File, text string, at int64) error {
	_, err := f.WriteAt([]byte(text), at)
	return err
}

// holder is what the lock of a state folder says.
type holder struct {
	process int
	word    string
	socket  string
}

// holderOf reads the lock of a state folder; of a keeper of an earlier release it
// says no more than the process.
func holderOf(state string) (h holder) {
	text, err := os.ReadFile(filepath.Join(state, LockFile))
	if err != nil {
		return h
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	_, _ = fmt.Sscanf(first, "process %d", &h.process) // what is not there stays empty
	h.word, h.socket, _ = strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	return h
}

// HolderEnded says whether the process that the lock of a state folder names has
// ended. What it was starting may have the lock a little longer.
func HolderEnded(state string) bool {
	h := holderOf(state)
	if h.process <= 0 {
		return false
	}
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", h.process)) // of one that was not waited for there is none
	return errors.Is(err, os.ErrNotExist)
}

// taken says whether a keeper holds a state folder.
func taken(state string) bool {
	f, err := os.Open(filepath.Join(state, LockFile))
	if err != nil {
		return false
	}
	defer f.Close() // and with it, the lock
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// silent says why nobody answers for a state folder that is taken. One that has not
// come to serving has no box yet, and another can take its place.
func (f found) silent() error {
	h := holderOf(f.slot.State)
	if h.word == beginsWord && h.socket == f.slot.Socket {
		return &cofferdam.Error{
			Op: "keeper.Gather", Kind: cofferdam.Unavailable, Subject: "keeper at unix:" + f.slot.Socket,
			Reason: fmt.Sprintf("process %d was started and does not come to serving", h.process), Err: errHangs,
			Hint: fmt.Sprintf("kill -CONT %d if it was stopped, or end it with kill -KILL %d: it has no box; its log is %s", h.process, h.process, filepath.Join(f.slot.State, "keeper.log")),
		}
	}
	return &cofferdam.Error{
		Op: "keeper.Gather", Kind: cofferdam.Conflict, Subject: "keeper at unix:" + f.slot.Socket,
		Reason: "a keeper works in " + f.slot.State + " and does not answer there", Hint: "it has another --socket, or hangs: the file lock in that folder names its process",
	}
}
