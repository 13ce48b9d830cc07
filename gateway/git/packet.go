package git

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"cofferdam"
	"cofferdam/internal/repo"
)

// Bounds of a push's command list. git itself has none; a push of every ref of
// the largest repositories we know of stays below these.
const (
	maxPacket   = 65520   // bytes of a packet, its length included (git's LARGE_PACKET_MAX)
	maxCommands = 10_000  // ref updates, refused ones included
	maxListing  = 4 << 20 // bytes of the whole command list
	maxOptions  = 64      // push options
	maxRefName  = 4096    // bytes
)

// push is what a client asks for in a push, up to its pack.
type push struct {
	updates []repo.Update // Ref is as sent: hostile bytes
	caps    []string
	shallow []cofferdam.Commit
}

// errProbe says that the body is the bare flush that git sends before a large
// push, to see whether it may.
var errProbe = errors.New("empty push")

// packets reads pkt-lines: four hexadecimal digits of length, these four
// included, and the payload. 0000 is a flush.
type packets struct {
	r    *bufio.Reader
	left int // bytes that may still be read
	// sections: the stream is of protocol version 2, where 0001 begins a part
	// of a request. It reads as an empty packet.
	sections bool
}

// next returns the payload of the next packet, nil for a flush.
func (p *packets) next() ([]byte, error) {
	var digits [4]byte
	if _, err := io.ReadFull(p.r, digits[:]); err != nil {
		return nil, fmt.Errorf("the command list is cut off: %w", err)
	}
	n := 0
	for _, d := range digits {
		v := strings.IndexByte("0123456789abcdef", lower(d))
		if v < 0 {
			return nil, fmt.Errorf("%q is no packet length", digits[:])
		}
		n = n<<4 | v
	}
	if n == 0 {
		return nil, nil
	}
	if n == 1 && p.sections {
		return []byte{}, nil
	}
	if n < 4 || n > maxPacket {
		return nil, fmt.Errorf("a packet of length %04x does not belong here", n)
	}
	if p.left -= n; p.left < 0 {
		return nil, errors.New("it is longer than what is read of such a request")
	}
	payload := make([]byte, n-4)
	if _, err := io.ReadFull(p.r, payload); err != nil {
		return nil, fmt.Errorf("the command list is cut off: %w", err)
	}
	return payload, nil
}

func lower(d byte) byte {
	if 'A' <= d && d <= 'F' {
		return d + 'a' - 'A'
	}
	return d
}

// readPush reads the command list of a push and leaves r at its pack. What it
// cannot read to the last bit it refuses.
func readPush(r *bufio.Reader) (push, error) {
	p, in := push{}, &packets{r: r, left: maxListing}
	for first := true; ; {
		line, err := in.next()
		if err != nil {
			return p, err
		}
		if line == nil {
			break
		}
		text, caps, hasCaps := bytes.Cut(line, []byte{0})
		if bytes.IndexByte(caps, 0) >= 0 || hasCaps && !first {
			return p, errors.New("capabilities stand where none belong")
		}
		s := strings.TrimSuffix(string(text), "\n")
		if id, ok := strings.CutPrefix(s, "shallow "); ok && len(p.updates) == 0 && !hasCaps {
			c := cofferdam.Commit(id)
			if repo.CheckCommit(c) != nil || len(p.shallow) == maxCommands {
				return p, errors.New("the shallow boundary cannot be read")
			}
			p.shallow = append(p.shallow, c)
			continue
		}
		if first {
			p.caps, first = strings.Fields(string(caps)), false
		}
		u, err := readUpdate(s)
		if err != nil {
			return p, err
		}
		if p.updates = append(p.updates, u); len(p.updates) > maxCommands {
			return p, fmt.Errorf("it names more than %d refs", maxCommands)
		}
	}
	if len(p.updates) == 0 {
		if len(p.shallow) > 0 {
			return p, errors.New("it names no ref")
		}
		return p, errProbe
	}
	return p, p.skipOptions(in)
}

// readUpdate reads "old new ref".
func readUpdate(s string) (repo.Update, error) {
	if strings.HasPrefix(s, "push-cert") {
		return repo.Update{}, errors.New("signed pushes are not supported")
	}
	f := strings.SplitN(s, " ", 3)
	if len(f) != 3 || f[2] == "" || len(f[2]) > maxRefName {
		return repo.Update{}, fmt.Errorf("%q is no ref update", repo.OneLine(s))
	}
	u := repo.Update{Ref: cofferdam.Ref(f[2]), Old: cofferdam.Commit(f[0]), New: cofferdam.Commit(f[1])}
	if repo.CheckCommit(u.Old) != nil || repo.CheckCommit(u.New) != nil {
		return u, fmt.Errorf("%q is no ref update", repo.OneLine(s))
	}
	if len(u.Old) != 40 || len(u.New) != 40 {
		return u, errors.New("only sha1 object ids are supported")
	}
	return u, nil
}

// skipOptions reads push options, if there are any. They go nowhere: an
// upstream would act on them.
func (p push) skipOptions(in *packets) error {
	if !p.has("push-options") {
		return nil
	}
	for range maxOptions {
		if line, err := in.next(); err != nil || line == nil {
			return err
		}
	}
	return fmt.Errorf("it has more than %d options", maxOptions)
}

func (p push) has(capability string) bool {
	for _, c := range p.caps {
		if c == capability {
			return true
		}
	}
	return false
}

// packet appends s as one packet.
func packet(b *bytes.Buffer, s string) { fmt.Fprintf(b, "%04x%s", len(s)+4, s) }

// maxBand is the payload of one side-band packet that every client takes.
const maxBand = 8000

// report is the answer to a push: a line for each update, and messages that
// the client shows as "remote: …". verdicts has a reason for each ref that was
// not written, and "" for one that was.
func (p push) report(verdicts map[cofferdam.Ref]string, messages []string) []byte {
	var status, out bytes.Buffer
	packet(&status, "unpack ok\n")
	for _, u := range p.updates {
		if why := verdicts[u.Ref]; why != "" {
			packet(&status, "ng "+string(u.Ref)+" "+repo.OneLine(why)+"\n")
		} else {
			packet(&status, "ok "+string(u.Ref)+"\n")
		}
	}
	status.WriteString("0000")
	if !p.has("report-status") && !p.has("report-status-v2") {
		status.Reset()
	}
	if !p.has("side-band-64k") {
		return status.Bytes()
	}
	for _, m := range messages {
		packet(&out, "\x02"+repo.OneLine(m)+"\n")
	}
	for b := status.Bytes(); len(b) > 0; {
		n := min(maxBand, len(b))
		packet(&out, "\x01"+string(b[:n]))
		b = b[n:]
	}
	out.WriteString("0000")
	return out.Bytes()
}
