package gateways

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"cofferdam"
	"cofferdam/internal/local/network"
)

// Serve serves one box for the run that is at the other end of talk: tap is its
// network device. It returns when the run says so, or is gone.
func Serve(ctx context.Context, talk io.ReadWriteCloser, tap *os.File) error {
	defer talk.Close()
	var s network.Setup
	if err := network.Receive(talk, &s); err != nil {
		return errors.Join(fmt.Errorf("read what is to be served: %w", err), tap.Close())
	}
	r := &remote{talk: talk, answers: make(chan network.Answer, 1)}
	w, err := open(ctx, s, r)
	if err != nil {
		return errors.Join(network.Send(talk, network.Entry{Error: err.Error()}), tap.Close())
	}
	if served, err := r.connect(w, tap); !served {
		return errors.Join(err, w.Close())
	}
	if !r.listen() { // there is nobody to put anything on record
		w.End()
		return nil
	}
	listening := make(chan struct{})
	go func() { // closing has things put on record too
		defer close(listening)
		r.listen()
	}()
	err = w.Close()
	_ = talk.Close() // the run waits for that, and sends nothing any more
	<-listening
	return err
}

func open(ctx context.Context, s network.Setup, r cofferdam.Recorder) (network.Way, error) {
	if s.Version != network.Version {
		return nil, fmt.Errorf("it speaks version %d of the talk and the run version %d: another release was installed meanwhile", network.Version, s.Version)
	}
	return Here{}.Open(ctx, s, r)
}

// remote is a record that the run at the other end writes.
type remote struct {
	talk    io.ReadWriteCloser
	answers chan network.Answer
	mu      sync.Mutex // held from an entry to its answer
	gone    bool       // guarded by mu
	writing sync.Mutex
}

// connect serves the box whose network device is tap, and tells the run. A packet
// waits in the device; what it asks for goes on record once the run knows that it
// is served, which would take an earlier entry for that word, and leave it out.
func (r *remote) connect(w network.Way, tap *os.File) (served bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first network.Entry
	if err := w.Connect(network.Box{TAP: tap}); err != nil {
		first.Error = err.Error()
	}
	err = r.send(first)
	r.gone = err != nil || first.Error != ""
	return !r.gone, err
}

// Record implements cofferdam.Recorder.
func (r *remote) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := errors.New("the run whose record it is has ended")
	if r.gone {
		return e, gone
	}
	if err := r.send(network.Entry{Event: e, Durable: e.Durable}); err != nil {
		r.gone = true
		return e, err
	}
	a, ok := <-r.answers
	switch {
	case !ok:
		r.gone = true
		return e, gone
	case a.Error != "":
		return e, errors.New(a.Error)
	}
	return a.Event, nil
}

func (r *remote) send(e network.Entry) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return network.Send(r.talk, e)
}

// listen hands answers on until the run asks for the end, or, false, is gone.
func (r *remote) listen() bool {
	for {
		var a network.Answer
		if network.Receive(r.talk, &a) != nil {
			close(r.answers)
			return false
		}
		if a.End {
			return true
		}
		r.answers <- a
	}
}
