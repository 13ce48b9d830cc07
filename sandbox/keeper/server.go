package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

const (
	// maxConnections is how many calls are served at once: each running command
	// has one attachment, and a box at most 256 of those run.
	maxConnections = 4096
	// firstWords is how long a client may take to say what it wants.
	firstWords = 10 * time.Second
	// acceptPause is how long to wait before accepting again after an error.
	acceptPause = 100 * time.Millisecond
)

// Options is what a keeper is told of itself. All of it is optional.
type Options struct {
	Build string   // of its programs: BuildOf
	Args  []string // that another keeper in its place is to be started with
	State string   // folder that keeps the claim over a restart; "": nothing does
	Log   *slog.Logger
}

// Serve offers drivers on l until ctx ends, or until it was told to drain and
// has no box any more. It returns when the last call has ended, and closes l;
// boxes stay as they are.
func Serve(ctx context.Context, l *net.UnixListener, drivers map[sandbox.Tier]sandbox.Driver, o Options) error {
	return newServer(drivers, o).run(ctx, l)
}

type server struct {
	o        Options
	drivers  map[sandbox.Tier]sandbox.Driver
	tiers    []sandbox.Tier // in a fixed order
	log      *slog.Logger
	process  int
	slots    chan struct{} // one for each call under way
	patience time.Duration // with a client's first words
	lease    *lease
	drain    *drain
}

func newServer(drivers map[sandbox.Tier]sandbox.Driver, o Options) *server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &server{
		o: o, drivers: drivers, tiers: slices.Sorted(maps.Keys(drivers)), log: o.Log, process: os.Getpid(),
		slots: make(chan struct{}, maxConnections), patience: firstWords,
		lease: openLease(o.State), drain: newDrain(),
	}
}

// each returns every driver once: one may have several tiers.
func (s *server) each() []sandbox.Driver {
	var all []sandbox.Driver
	for _, t := range s.tiers {
		if d := s.drivers[t]; !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

func (s *server) run(ctx context.Context, l *net.UnixListener) error {
	for _, d := range s.each() {
		list, err := d.List(ctx)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		s.drain.has(list)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	go func() {
		select {
		case <-s.drain.empty:
			cancel()
		case <-ctx.Done():
		}
	}()
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if conn != nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept call: %w", err)
		case err != nil: // out of descriptors, most likely: others will end
			s.log.WarnContext(ctx, "accept call", slog.Any("err", err))
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		select {
		case s.slots <- struct{}{}:
			calls.Go(func() {
				defer func() { <-s.slots }()
				s.serve(ctx, conn)
			})
		default:
			s.log.WarnContext(ctx, "refuse call", slog.Any("err", "too many"))
			s.refuse(conn, &cofferdam.Error{
				Op: "keeper.Serve", Kind: cofferdam.Exhausted, Subject: "call keeper",
				Reason: fmt.Sprintf("%d calls are under way", cap(s.slots)), Hint: "try again when some have ended",
			})
			conn.Close()
		}
	}
}

// refuse says why, without waiting for who does not listen.
func (s *server) refuse(conn *net.UnixConn, err error) {
	conn.SetWriteDeadline(time.Now().Add(acceptPause))
	_ = writeJSON(conn, hello{Protocol: protocolName, Version: Version, Error: packError(err)})
}

// serve answers one call.
func (s *server) serve(ctx context.Context, conn *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(s.patience))
	if err := s.admit(conn); err != nil {
		s.log.WarnContext(ctx, "refuse call", slog.Any("err", err))
		s.refuse(conn, err)
		return
	}
	if err := writeJSON(conn, hello{Protocol: protocolName, Version: Version}); err != nil {
		return
	}
	first, err := readFrame(conn)
	var r request
	if err == nil {
		err = first.json(&r)
	}
	if err != nil {
		_ = writeJSON(conn, reply{Error: packError(invalid(err.Error()))})
		return
	}
	conn.SetDeadline(time.Time{})
	c := &call{server: s, conn: conn, r: r, frames: make(chan frame)}
	go c.read(ctx, cancel)
	if err := c.serve(ctx); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "answer call", slog.Any("op", r.Op), slog.Any("box", r.Box), slog.Any("err", err))
	}
	s.drain.settle()
}

// admit refuses strangers and other versions.
func (s *server) admit(conn *net.UnixConn) error {
	const subject = "call keeper"
	peer, err := peerOf(conn)
	if err != nil {
		return &cofferdam.Error{Op: "keeper.Serve", Kind: cofferdam.Internal, Subject: subject, Err: err}
	}
	if uid := int(peer.Uid); uid != os.Geteuid() {
		return &cofferdam.Error{
			Op: "keeper.Serve", Kind: cofferdam.Forbidden, Subject: subject,
			Reason: fmt.Sprintf("it serves user %d only, and you are user %d", os.Geteuid(), uid), Hint: "run as the keeper's user",
		}
	}
	f, err := readFrame(conn)
	if err != nil {
		return invalid(err.Error())
	}
	var h hello
	if err := f.json(&h); err != nil {
		return invalid(err.Error())
	}
	if h.Protocol != protocolName || h.Version != Version {
		return &cofferdam.Error{
			Op: "keeper.Hello", Kind: cofferdam.Unavailable, Subject: subject,
			Reason: fmt.Sprintf("this keeper speaks version %d of the keeper protocol, the caller version %d of %.40q", Version, h.Version, h.Protocol),
			Hint:   "use server and keeper of one release",
		}
	}
	return nil
}

func invalid(reason string) error {
	return &cofferdam.Error{Op: "keeper.Serve", Kind: cofferdam.Invalid, Subject: "call keeper", Reason: reason}
}
