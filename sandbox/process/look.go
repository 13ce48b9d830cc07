package process

import "cofferdam/sandbox/hostview"

// Look is what a box has to know of this host before it can show it: what of
// /etc is not for everybody, and what is mounted where. It takes as long as a
// program takes to start, so whoever makes a box begins it first of all.
type Look struct {
	done   chan struct{}
	secret []string // paths in /etc
	mounts []hostMount
	err    error
}

// LookAtHost begins to look and returns at once.
func LookAtHost() *Look {
	l := &Look{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		etc, err := hostview.SecretEtc("/etc")
		l.secret, l.err = append(etc, hostview.ClosedEtc("/etc", etc)...), err
		l.mounts = hostMounts()
	}()
	return l
}

// seen waits for what was found.
func (l *Look) seen() (secret []string, mounts []hostMount, err error) {
	<-l.done
	return l.secret, l.mounts, l.err
}
