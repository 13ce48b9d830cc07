package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// call is one request being served.
type call struct {
	*server
	conn   *net.UnixConn
	r      request
	frames chan frame // what the client sends after its request
}

// read passes on the client's frames and ends the call when it is gone.
func (c *call) read(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	for {
		f, err := readFrame(c.conn)
		if err != nil {
			return
		}
		select {
		case c.frames <- f:
		case <-ctx.Done():
			return
		}
	}
}

// next waits for the client's next frame of a kind.
func (c *call) next(ctx context.Context, kind frameKind) (frame, error) {
	select {
	case f := <-c.frames:
		if f.kind != kind {
			return frame{}, fmt.Errorf("%w: kind %d instead of %d", errBroken, f.kind, kind)
		}
		return f, nil
	case <-ctx.Done():
		return frame{}, ctx.Err()
	}
}

// serve answers a call, one that changes something for as long as its client
// has the claim.
func (c *call) serve(ctx context.Context) error {
	if !c.r.Op.changes() {
		return c.answer(ctx)
	}
	over, leave, err := c.lease.enter(c.r.Token)
	if err != nil {
		return errors.Join(err, writeJSON(c.conn, reply{Error: packError(err)}))
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(over, func() {
		_ = c.conn.SetDeadline(time.Now().Add(fencedTime)) // fails when the call has ended
		cancel(c.lease.refusal())
	})
	defer stop()
	return c.answer(ctx)
}

// answer does what is asked and sends the reply.
func (c *call) answer(ctx context.Context) error {
	if c.r.Op == opWire {
		return c.wire(ctx)
	}
	re, err := c.do(ctx)
	err = because(ctx, err)
	re.Error = packError(err)
	return errors.Join(err, writeJSON(c.conn, re))
}

// because puts the reason why a call was ended in the place of what it failed
// with.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && cofferdam.KindOf(cause) == cofferdam.Conflict {
		return cause
	}
	return err
}

func (c *call) do(ctx context.Context) (reply, error) {
	switch c.r.Op {
	case opHello:
		return reply{Info: c.info()}, nil
	case opClaim:
		token, err := c.lease.claim(ctx)
		return reply{Token: token}, err
	case opDrain:
		c.drain.start()
		c.log.InfoContext(ctx, "keeper drains: it makes no new boxes and ends with the last one")
		return reply{}, nil
	case opCheck:
		return c.check(ctx)
	case opList:
		return c.list(ctx)
	case opCreate:
		return c.create(ctx)
	case opOffers:
		return c.offers(ctx)
	case opWorkspaces:
		return c.workspaces(ctx)
	case opDrop:
		return reply{}, c.drop(ctx)
	case opSnapshots, opSign, opForget, opDifferences, opRestore:
		return c.checkpoint(ctx)
	}
	b, err := c.open(ctx)
	if c.r.Op == opDestroy && err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		c.drain.gone(c.r.Box)
		return reply{}, nil // destroying twice is no error
	}
	if err != nil {
		return reply{}, err
	}
	switch c.r.Op {
	case opOpen, opStatus:
		st, err := b.Status(ctx)
		return reply{Status: &st}, err
	case opStart:
		if c.r.Command == nil {
			return reply{}, invalid("start without a command")
		}
		return reply{}, b.Start(ctx, c.r.Command.unpack())
	case opAttach:
		r, err := b.Attach(ctx, c.r.Exec, c.r.From, c.sink(ctx))
		return reply{Result: &r}, err
	case opWrite:
		return reply{}, c.write(ctx, b)
	case opKill:
		return reply{}, b.Kill(ctx, c.r.Exec)
	case opJobs:
		jobs, err := b.Jobs(ctx)
		return reply{Jobs: jobs}, err
	case opDestroy:
		err := b.Destroy(ctx)
		if err == nil {
			c.drain.gone(c.r.Box)
		}
		return reply{}, err
	}
	return c.live(ctx, b)
}

// live does what takes a box from a state to another.
func (c *call) live(ctx context.Context, b sandbox.Box) (reply, error) {
	switch c.r.Op {
	case opWait:
		change, err := b.Wait(ctx, c.r.States...)
		return reply{Change: &change}, err
	case opPause:
		return reply{}, b.Pause(ctx)
	case opSuspend:
		return reply{}, b.Suspend(ctx)
	case opResume:
		return reply{}, b.Resume(ctx)
	case opSnapshot:
		if c.r.Take == nil {
			return reply{}, invalid("snapshot without what to take")
		}
		s, err := b.Snapshot(ctx, *c.r.Take)
		return reply{Snapshot: &s}, err
	}
	return reply{}, invalid(fmt.Sprintf("there is no call %.40q", string(c.r.Op)))
}

func (c *call) check(ctx context.Context) (reply, error) {
	var re reply
	for _, tier := range c.tiers {
		findings, err := c.drivers[tier].Check(ctx)
		if err != nil {
			return reply{}, err
		}
		re.Findings = append(re.Findings, findings...)
	}
	return re, nil
}

func (c *call) offers(ctx context.Context) (reply, error) {
	var re reply
	for _, tier := range c.tiers {
		offers, err := c.drivers[tier].Offers(ctx)
		if err != nil {
			return reply{}, err
		}
		re.Offers = append(re.Offers, offers...)
	}
	return re, nil
}

func (c *call) list(ctx context.Context) (reply, error) {
	var re reply
	for _, d := range c.each() {
		list, err := d.List(ctx)
		if err != nil {
			return reply{}, err
		}
		re.List = append(re.List, list...)
	}
	return re, nil
}

// create makes a box, or nothing at all if the client goes away meanwhile.
func (c *call) create(ctx context.Context) (reply, error) {
	if c.r.Spec == nil {
		return reply{}, invalid("create without a spec")
	}
	d := c.drivers[c.r.Spec.Tier]
	if d == nil {
		return reply{}, &cofferdam.Error{
			Op: "keeper.Create", Kind: cofferdam.Unavailable,
			Subject: "create box " + string(c.r.Spec.ID),
			Reason:  fmt.Sprintf("this keeper has no boxes of tier %.40q, only %q", string(c.r.Spec.Tier), c.tiers),
			Hint:    "ask for one of those, or run the keeper on a host that has that tier",
		}
	}
	first, err := c.drain.begin(c.r.Spec.ID)
	if err != nil {
		return reply{}, err
	}
	b, err := d.Create(ctx, *c.r.Spec)
	if err != nil {
		if first {
			c.drain.gone(c.r.Spec.ID)
		}
		return reply{}, err
	}
	st, err := b.Status(ctx)
	return reply{Status: &st}, err
}

// open finds the box that is asked for, whatever its tier.
func (c *call) open(ctx context.Context) (sandbox.Box, error) {
	for _, tier := range c.tiers {
		b, err := c.drivers[tier].Open(ctx, c.r.Box)
		if err == nil {
			return b, nil
		}
		if cofferdam.KindOf(err) != cofferdam.NotFound {
			return nil, err
		}
	}
	return nil, &cofferdam.Error{
		Op: "keeper.Open", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("box %.64q", string(c.r.Box)),
		Reason: "the keeper has no such box",
	}
}

// sink sends output and takes the client's acknowledgement for the sink's nil.
func (c *call) sink(ctx context.Context) sandbox.Sink {
	return func(s sandbox.Stream, off int64, p []byte) error {
		for len(p) > 0 {
			n := min(len(p), chunk)
			if err := writeData(c.conn, s, off, p[:n]); err != nil {
				return err
			}
			if _, err := c.next(ctx, kindAck); err != nil {
				return err
			}
			off, p = off+int64(n), p[n:]
		}
		return nil
	}
}

// write takes as much input as was announced.
func (c *call) write(ctx context.Context, b sandbox.Box) error {
	for left := c.r.Size; left > 0; {
		f, err := c.next(ctx, kindData)
		if err != nil {
			return err
		}
		_, _, p, err := f.data()
		if err != nil || len(p) == 0 || int64(len(p)) > left {
			return invalid("input frames do not match the announced size")
		}
		if err := b.Write(ctx, c.r.Exec, p, false); err != nil {
			return err
		}
		if err := writeAck(c.conn); err != nil {
			return err
		}
		left -= int64(len(p))
	}
	if c.r.EOF || c.r.Size == 0 {
		return b.Write(ctx, c.r.Exec, nil, c.r.EOF)
	}
	return nil
}

// wire lends the client a queue of the box's network device.
func (c *call) wire(ctx context.Context) error {
	b, err := c.open(ctx)
	if err != nil {
		return writeJSON(c.conn, reply{Error: packError(because(ctx, err))})
	}
	tap, err := b.Wire(ctx)
	if err != nil {
		return writeJSON(c.conn, reply{Error: packError(because(ctx, err))})
	}
	defer tap.Close()
	return writeWithFile(c.conn, reply{}, tap)
}
