package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/guest"
)

// rename makes this process the one that names the box: the host starts it
// where pid 1 may not, as "init --hostname NAME", with the right for just that.
func rename(args []string) (asked bool, err error) {
	if len(args) != 3 || args[1] != "--hostname" {
		return false, nil
	}
	return true, unix.Sethostname([]byte(args[2]))
}

// quiet answers and holds the talk where it is, until wake. The host sends
// nothing meanwhile, and whoever has something to say waits for outMu.
func (b *box) quiet() {
	if b.resting {
		return // a host that asks twice is a broken host
	}
	if err := b.group.freeze(true); err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-init: "+err.Error())
		return // a host without an answer takes no copy
	}
	b.outMu.Lock()
	b.resting = true
	if _, err := b.out.Write(guest.AppendFrame(nil, guest.Frame{Kind: guest.KindIsQuiet})); err != nil {
		b.end()
		os.Exit(1)
	}
}

// wake takes the box's identity and lets the talk go on.
func (b *box) wake(p []byte) {
	var id guest.Identity
	var answer guest.Awake
	if err := json.Unmarshal(p, &id); err != nil {
		answer.Error = "the host's identity for this box cannot be read"
	} else if err := become(id); err != nil {
		answer.Error = err.Error()
	}
	if err := b.group.freeze(false); err != nil && answer.Error == "" {
		answer.Error = err.Error()
	}
	if b.resting {
		b.resting = false
		b.outMu.Unlock()
	}
	b.sendJSON(guest.KindAwake, 0, answer)
}

// become makes the box who id says it is.
func become(id guest.Identity) error {
	if err := errors.Join(setClock(id.Time), reseed(id.Seed)); err != nil {
		return err
	}
	if id.Hostname != "" {
		var now unix.Utsname
		if err := unix.Uname(&now); err != nil {
			return err
		}
		if unix.ByteSliceToString(now.Nodename[:]) != id.Hostname {
			if err := unix.Sethostname([]byte(id.Hostname)); err != nil {
				return fmt.Errorf("set hostname: %w", err)
			}
		}
	}
	if id.Dir == "" {
		return nil
	}
	return errors.Join(
		replace(id.Dir, "hostname", id.Hostname+"\n"),
		replace(id.Dir, "hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 "+id.Hostname+"\n"),
		replace(id.Dir, "machine-id", id.MachineID+"\n"),
	)
}

// replace writes a file that is there whole or not at all. A box that was made ahead
// waits for this, so it makes no call of the kernel that it does not need: os.WriteFile
// makes ten.
func replace(dir, name, text string) error {
	to := filepath.Join(dir, name)
	fresh := to + ".new"
	fd, err := unix.Open(fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return fmt.Errorf("write identity: %w", &os.PathError{Op: "open", Path: fresh, Err: err})
	}
	n, err := unix.Write(fd, []byte(text))
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("write identity: %w", &os.PathError{Op: "write", Path: fresh, Err: err})
	}
	return unix.Rename(fresh, to)
}
