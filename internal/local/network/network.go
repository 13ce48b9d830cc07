// Package network is the network of a run of one command, as the run has it: what
// it asks of the gateways that its box reaches, and on Linux the program that they
// are, cofferdam-wire, which is started with the first packet: it links much, most
// commands send none, and all would wait for it.
//
// It decides nothing, and holds no key. The invariant: the record of a run has
// one writer, the run; what the gateways put on record goes through it, which takes
// nothing else from them, and they let nothing pass before its answer. Once they are gone nothing passes at all, and
// the box hears so at once.
//
// # The talk
//
// Both ends send frames: u32 length, big endian, and that many bytes of JSON, of
// maxFrame at most. The run begins with Setup and sends an Answer for each Entry
// that it gets, in their order; one with End asks the gateways to end every
// connection. The first Entry, empty but for its error if there is one, says that
// the gateways serve.
package network

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/policy"
)

// Gateways are all that a box can reach: nothing but what policy allows.
type Gateways interface {
	// Trust returns the files by which a box trusts the authority whose key lies in
	// the folder keys, which is made if there is none, beside roots, PEM.
	Trust(ctx context.Context, keys string, roots []byte) (Trust, error)
	// Open readies the gateways of one run. All that they do goes to record before
	// it happens.
	Open(ctx context.Context, s Setup, record cofferdam.Recorder) (Way, error)
}

// Way is the way out of one box.
type Way interface {
	// Connect serves a box, whose device it owns.
	Connect(b Box) error
	// Serve serves the connections of a box that has no device, by a proxy, until
	// End, and returns when the last of them has ended. It owns l.
	Serve(l net.Listener, password string) error
	// End cuts what is under way; nothing passes from then on.
	End()
	// Close is End, and waits for what it cuts. Its error says that the box had no
	// network to its end, if Lost was not told so.
	Close() error
}

// Box is a box with a network device.
type Box struct {
	TAP  *os.File        // a queue of the device; it can be waited for
	PID  int             // a process in the network of the box; 0: unknown
	Lost func(why error) // called once if the network ends before End, and before the box hears of it; nil: nobody asks
}

// ErrFull is in the error of a Recorder that takes nothing any more: then the
// network of the box ends, for that reason.
var ErrFull = errors.New("the record is full")

// ProxyURL is what the variables HTTP_PROXY and HTTPS_PROXY of a box say whose way
// out is Serve, as package proxy has it.
func ProxyURL(password string, addr net.Addr) string {
	return "http://cofferdam:" + password + "@" + addr.String()
}

// Setup is what the gateways are told of a run.
type Setup struct {
	Version  int                           `json:"version"` // of the talk
	Session  cofferdam.SessionID           `json:"session"`
	Scope    cofferdam.Scope               `json:"scope"`
	Keys     string                        `json:"keys"` // folder with the key of the authority
	Grant    policy.Grant                  `json:"grant"`
	Policy   cofferdam.Digest              `json:"policy"` // of Grant, as the record has it
	Hosts    map[cofferdam.Host]netip.Addr `json:"hosts,omitempty"`
	Resolver netip.AddrPort                `json:"resolver"`
	Allow    []config.AddrAndPort          `json:"allow,omitempty"` // reserved addresses that may be dialled
}

// Version is that of the talk: programs of two releases may meet while one is
// installed over the other.
const Version = 1

// Actor is who does what the gateways of a run put on record.
var Actor = cofferdam.Principal{Kind: cofferdam.Agent, Name: "run"}

// Trust is how programs in a box come to trust an authority.
type Trust struct {
	Bundle string   `json:"bundle"` // path in a box of the certificates as one file
	Names  []string `json:"names"`  // variables that name it
	Files  []File   `json:"files"`
}

// File is one file of a box: bytes, or a link to another of them.
type File struct {
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"`
	Link string `json:"link,omitempty"`
}

// CAFile is the name of the file with key and certificate of the authority in the
// folder of keys, as package egress has it.
const CAFile = "gateway-ca.pem"

// Entry is what is to be put on record.
type Entry struct {
	Event   cofferdam.Event `json:"event"`
	Durable bool            `json:"durable,omitempty"`
	Error   string          `json:"error,omitempty"` // of the first one: why the gateways do not serve
}

// Answer is what became of it.
type Answer struct {
	Event cofferdam.Event `json:"event"`
	Error string          `json:"error,omitempty"` // it is not on record
	End   bool            `json:"end,omitempty"`   // no answer: every connection is to end
}

// maxFrame bounds a message of the talk, in bytes: far above the largest event,
// a policy of as many rules as there may be, and the roots of a machine.
const maxFrame = 16 << 20

// Send writes v as one frame.
func Send(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > maxFrame {
		return fmt.Errorf("a message of %d bytes is longer than %d", len(body), maxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// Receive reads one frame into v. At the end of the talk it returns io.EOF.
func Receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("a message of %d bytes is longer than %d", n, maxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	return nil
}
