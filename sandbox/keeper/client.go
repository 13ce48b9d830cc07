package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Client is the Driver of a keeper elsewhere on this machine. It holds no
// connection between calls, so it survives a keeper that is started again; the
// boxes do not. That of a Set starts it again itself. Safe for concurrent use.
type Client struct {
	path  string
	token string   // of its claim
	again *reviver // of a keeper that ends; nil: nobody starts another
}

var _ sandbox.Driver = (*Client)(nil)

// Dial finds the keeper at socketPath, makes sure that it speaks our version
// and runs as our user or as root, and claims it: from now on no other client
// changes anything there, and what those were about to do has ended.
func Dial(ctx context.Context, socketPath string) (*Client, error) {
	c := &Client{path: socketPath}
	re, err := c.call(ctx, request{Op: opClaim})
	if err != nil {
		return nil, err
	}
	c.token = re.Token
	return c, nil
}

// Look asks the keeper at socketPath who it is, and leaves it to whoever has
// claimed it.
func Look(ctx context.Context, socketPath string) (Info, error) {
	re, err := (&Client{path: socketPath}).call(ctx, request{Op: opHello})
	if err != nil || re.Info == nil {
		return Info{}, err
	}
	return *re.Info, nil
}

// Drain tells the keeper that it is being replaced: it makes no new boxes, and
// ends with its last one.
func (c *Client) Drain(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: opDrain})
	return err
}

// Check examines the keeper's host.
func (c *Client) Check(ctx context.Context) ([]sandbox.Finding, error) {
	re, err := c.call(ctx, request{Op: opCheck})
	return re.Findings, err
}

// Create makes a box.
func (c *Client) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	if _, err := c.call(ctx, request{Op: opCreate, Spec: &spec}); err != nil {
		return nil, err
	}
	return &box{client: c, id: spec.ID}, nil
}

// Open finds a box.
func (c *Client) Open(ctx context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	if _, err := c.call(ctx, request{Op: opOpen, Box: id}); err != nil {
		return nil, err
	}
	return &box{client: c, id: id}, nil
}

// List returns every box of the keeper.
func (c *Client) List(ctx context.Context) ([]sandbox.Status, error) {
	re, err := c.call(ctx, request{Op: opList})
	return re.List, err
}

// Offers says which tiers the keeper has.
func (c *Client) Offers(ctx context.Context) ([]sandbox.Offer, error) {
	re, err := c.call(ctx, request{Op: opOffers})
	return re.Offers, err
}

// box is a sandbox.Box behind the socket.
type box struct {
	client *Client
	id     cofferdam.BoxID
}

var _ sandbox.Box = (*box)(nil)

func (b *box) ID() cofferdam.BoxID { return b.id }

func (b *box) Status(ctx context.Context) (sandbox.Status, error) {
	re, err := b.client.call(ctx, request{Op: opStatus, Box: b.id})
	if err != nil || re.Status == nil {
		return sandbox.Status{}, err
	}
	return *re.Status, nil
}

func (b *box) Start(ctx context.Context, sc sandbox.Command) error {
	_, err := b.client.call(ctx, request{Op: opStart, Box: b.id, Command: packCommand(sc)})
	return err
}

func (b *box) Kill(ctx context.Context, id cofferdam.ExecID) error {
	_, err := b.client.call(ctx, request{Op: opKill, Box: b.id, Exec: id})
	return err
}

func (b *box) Destroy(ctx context.Context) error {
	_, err := b.client.call(ctx, request{Op: opDestroy, Box: b.id})
	return err
}

func (b *box) Attach(ctx context.Context, id cofferdam.ExecID, from sandbox.Offsets, sink sandbox.Sink) (sandbox.Result, error) {
	l, err := b.client.open(ctx, request{Op: opAttach, Box: b.id, Exec: id, From: from})
	if err != nil {
		return sandbox.Result{}, err
	}
	defer l.close()
	for {
		f, err := l.read()
		if err != nil {
			return sandbox.Result{}, err
		}
		if f.kind == kindJSON {
			re, err := l.reply(f)
			if err != nil || re.Result == nil {
				return sandbox.Result{}, err
			}
			return *re.Result, nil
		}
		s, off, p, err := f.data()
		if err != nil {
			return sandbox.Result{}, l.broken(err)
		}
		if err := sink(s, off, p); err != nil {
			return sandbox.Result{}, err
		}
		if err := writeAck(l.conn); err != nil {
			return sandbox.Result{}, l.broken(err)
		}
	}
}

func (b *box) Write(ctx context.Context, id cofferdam.ExecID, p []byte, eof bool) error {
	l, err := b.client.open(ctx, request{Op: opWrite, Box: b.id, Exec: id, Size: int64(len(p)), EOF: eof})
	if err != nil {
		return err
	}
	defer l.close()
	for len(p) > 0 {
		n := min(len(p), chunk)
		sendErr := writeData(l.conn, 0, 0, p[:n])
		// A keeper that refuses has hung up meanwhile: read why.
		f, err := l.read()
		if err != nil && sendErr != nil {
			return l.broken(sendErr)
		}
		if err != nil {
			return err
		}
		if f.kind != kindAck { // refused: the reply says why
			_, err := l.reply(f)
			return err
		}
		p = p[n:]
	}
	f, err := l.read()
	if err != nil {
		return err
	}
	_, err = l.reply(f)
	return err
}

func (b *box) Wire(ctx context.Context) (*os.File, error) {
	l, err := b.client.open(ctx, request{Op: opWire, Box: b.id})
	if err != nil {
		return nil, err
	}
	defer l.close()
	r := &fileReader{conn: l.conn}
	f, err := readFrame(r)
	if err == nil {
		_, err = l.reply(f)
	} else {
		err = l.broken(err)
	}
	if err == nil && r.file == nil {
		err = l.broken(errBroken)
	}
	if err != nil && r.file != nil {
		r.file.Close()
	}
	if err != nil {
		return nil, err
	}
	return r.file, nil
}

// line is one call under way.
type line struct {
	ctx  context.Context
	path string
	conn *net.UnixConn
	stop func() bool

	pid      int32         // of the keeper
	patience time.Duration // that it has for what it says next; 0: what the work takes
}

func (l *line) close() {
	l.stop()
	l.conn.Close()
}

// broken explains why the connection does not work, the caller's own end first.
func (l *line) broken(err error) error {
	if ctxErr := l.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return hangs(l.path, l.pid, l.patience)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it went away during the call")
	}
	return unavailable(l.path, err)
}

func unavailable(path string, err error) error {
	return &cofferdam.Error{
		Op: "keeper.Call", Kind: cofferdam.Unavailable, Subject: "call keeper at unix:" + path, Err: err,
		Hint: "try again: a server starts another keeper when it needs one; cofferdam doctor checks this host",
	}
}

func (l *line) read() (frame, error) {
	f, err := readFrame(l.conn)
	if err != nil {
		return frame{}, l.broken(err)
	}
	return f, nil
}

// reply reads a reply and the error in it.
func (l *line) reply(f frame) (reply, error) {
	var re reply
	if err := f.json(&re); err != nil {
		return reply{}, l.broken(err)
	}
	return re, re.Error.unpack()
}

// open makes a connection and sends a request on it. A keeper that is not there
// is started again once, if somebody can: it has heard nothing of the request.
func (c *Client) open(ctx context.Context, r request) (*line, error) {
	conn, err := c.connect(ctx)
	if err != nil && ended(err) && c.again != nil {
		if err := c.again.again(ctx); err != nil {
			return nil, err
		}
		if conn, err = c.connect(ctx); err != nil && ended(err) {
			return nil, c.again.refused(errors.New("it was started and ended at once"))
		}
	}
	if err != nil {
		return nil, err
	}
	r.Token = c.token
	l := &line{ctx: ctx, path: c.path, conn: conn}
	l.stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err := l.begin(r); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// connect reaches the keeper's socket.
func (c *Client) connect(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var opErr *net.OpError
		if errors.As(err, &opErr) {
			err = opErr.Err
		}
		return nil, unavailable(c.path, err)
	}
	return conn.(*net.UnixConn), nil
}

// begin says who we are and what we want, and hears who it is. A keeper that
// hangs is not waited for.
func (l *line) begin(r request) error {
	peer, err := peerOf(l.conn)
	if err != nil || (peer.Uid != 0 && int(peer.Uid) != os.Geteuid()) {
		return &cofferdam.Error{
			Op: "keeper.Call", Kind: cofferdam.Forbidden, Subject: "call keeper at unix:" + l.path,
			Reason: fmt.Sprintf("it runs as user %d, which is neither you nor root", peer.Uid), Err: err,
			Hint: "look who made that socket",
		}
	}
	l.pid = peer.Pid
	l.wait(firstWords)
	sendErr := writeJSON(l.conn, hello{Protocol: protocolName, Version: Version})
	if sendErr == nil {
		sendErr = writeJSON(l.conn, r)
	}
	if cofferdam.KindOf(sendErr) == cofferdam.Invalid {
		return sendErr
	}
	// A keeper that refuses may have hung up already: read why.
	f, err := l.read()
	if err != nil {
		return err
	}
	var h hello
	if err := f.json(&h); err != nil {
		return l.broken(err)
	}
	if err := h.check(l.path, peer.Pid); err != nil {
		return err
	}
	if sendErr != nil {
		return l.broken(sendErr)
	}
	l.wait(r.Op.patience())
	return nil
}

// wait bounds what is said from now on; 0: there is no bound.
func (l *line) wait(patience time.Duration) {
	l.patience = patience
	var until time.Time
	if patience > 0 {
		until = time.Now().Add(patience)
	}
	_ = l.conn.SetDeadline(until) // fails when the call was ended
}

// patience is how long a keeper that has greeted may take for its answer: one that
// is stopped between the two would keep a server from its start. The other
// operations take what their work takes; 0 stands for that.
func (o op) patience() time.Duration {
	switch o {
	case opHello, opDrain:
		return firstWords
	case opClaim:
		return settleTime + firstWords
	}
	return 0
}

// errHangs says that a keeper is there and says nothing.
var errHangs = errors.New("no answer")

// hangs is the error of a keeper that is there and says nothing.
func hangs(path string, pid int32, patience time.Duration) error {
	return &cofferdam.Error{
		Op: "keeper.Call", Kind: cofferdam.Unavailable, Subject: "call keeper at unix:" + path,
		Reason: fmt.Sprintf("process %d does not answer within %s", pid, patience), Err: errHangs,
		Hint: fmt.Sprintf("kill -CONT %d if it was stopped; kill -KILL %d ends it and its boxes, and their tasks try again", pid, pid),
	}
}

// check says why we do not go on with a keeper, and what is to be done.
func (h hello) check(path string, pid int32) error {
	if h.Protocol == protocolName && h.Version == Version {
		return h.Error.unpack()
	}
	e := &cofferdam.Error{Op: "keeper.Hello", Kind: cofferdam.Unavailable, Subject: "call keeper at unix:" + path}
	switch {
	case h.Protocol != protocolName:
		e.Reason, e.Hint = fmt.Sprintf("process %d does not speak the keeper protocol", pid), "look what it is, or choose another socket with --keeper"
	case h.Version < Version:
		e.Reason = fmt.Sprintf("process %d is a keeper of an older release: it speaks version %d of the keeper protocol, this program version %d", pid, h.Version, Version)
		e.Hint = fmt.Sprintf("its boxes end with it: let their tasks end under the server of that release, then kill -TERM %d and start this server", pid)
	default:
		e.Reason = fmt.Sprintf("process %d is a keeper of a newer release: it speaks version %d of the keeper protocol, this program version %d", pid, h.Version, Version)
		e.Hint = "start the server of that release"
	}
	return e
}

// call sends a request that has a single reply.
func (c *Client) call(ctx context.Context, r request) (reply, error) {
	l, err := c.open(ctx, r)
	if err != nil {
		return reply{}, err
	}
	defer l.close()
	f, err := l.read()
	if err != nil {
		return reply{}, err
	}
	return l.reply(f)
}
