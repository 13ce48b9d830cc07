package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// Numbers of TLS. Source: RFC 8446.
const (
	recordAlert          = 21
	recordHandshake      = 22
	recordHeader         = 5
	maxRecord            = 1 << 14 // of a plaintext record
	extensionECH         = 0xfe0d  // RFC 9849
	alertInternal        = 80
	alertDecode          = 50
	alertAccessDenied    = 49
	alertUnrecognized    = 112 // unrecognized_name
	alertNoProtocol      = 120 // no_application_protocol
	alertECHRequired     = 121 // ech_required
	messageClientHello   = 1
	messageHeader        = 4
	maxHello             = 32 << 10 // with post-quantum keys a hello has 2 KiB
	helloTimeout         = 20 * time.Second
	maxRecordsOfOneHello = 256
)

// alpnHTTP names HTTP/1.1 in a TLS handshake. Source: RFC 7301.
const alpnHTTP = "http/1.1"

// hello is what a TLS client says first.
type hello struct {
	name cofferdam.Host // SNI; "" if there is none
	ech  bool           // it carries an encrypted hello, which may name another host
	http bool           // HTTP/1.1 may be spoken inside: it is offered, or nothing is said
}

var (
	errHello = errors.New("the first message is no TLS client hello")
	errSeen  = errors.New("seen enough")
)

// peekHello reads the client hello without taking a byte from r. The hello may
// be spread over several records; all of it must arrive within maxHello bytes.
func peekHello(r *bufio.Reader) (hello, error) {
	message, err := helloMessage(r)
	if err != nil {
		return hello{}, err
	}
	var h hello
	// The parser of crypto/tls is given the message in records of its own, and
	// is stopped before it answers.
	server := tls.Server(readOnly{Reader: bytes.NewReader(reframe(message))}, &tls.Config{
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			h.name = cofferdam.ParseHost(i.ServerName)
			h.ech = slices.Contains(i.Extensions, extensionECH)
			h.http = len(i.SupportedProtos) == 0 || slices.Contains(i.SupportedProtos, alpnHTTP)
			return nil, errSeen
		},
	})
	if err := server.Handshake(); !errors.Is(err, errSeen) {
		return hello{}, errHello
	}
	if h.name != "" && policy.CheckHost(h.name) != nil {
		return hello{}, errHello
	}
	return h, nil
}

// helloMessage collects the handshake message from the records at the front.
func helloMessage(r *bufio.Reader) ([]byte, error) {
	var message []byte
	seen := 0
	for range maxRecordsOfOneHello {
		b, err := r.Peek(seen + recordHeader)
		if err != nil {
			return nil, err
		}
		head := b[seen:]
		size := int(head[3])<<8 | int(head[4])
		if head[0] != recordHandshake || head[1] != 3 || size == 0 || size > maxRecord || seen+recordHeader+size > maxHello {
			return nil, errHello
		}
		if b, err = r.Peek(seen + recordHeader + size); err != nil {
			return nil, err
		}
		message = append(message, b[seen+recordHeader:]...)
		seen += recordHeader + size
		if len(message) < messageHeader {
			continue
		}
		if message[0] != messageClientHello {
			return nil, errHello
		}
		want := messageHeader + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
		if len(message) == want {
			return message, nil
		}
		if len(message) > want || want > maxHello {
			return nil, errHello
		}
	}
	return nil, errHello
}

// reframe puts a handshake message into records of the largest size.
func reframe(message []byte) []byte {
	var out []byte
	for part := range slices.Chunk(message, maxRecord) {
		out = append(out, recordHandshake, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

// alert sends a fatal TLS alert, which clients print by its name.
func alert(w io.Writer, description byte) {
	_, _ = w.Write([]byte{recordAlert, 3, 3, 0, 2, 2, description}) // the client may be gone
}

// readOnly is a connection for a parser that only reads.
type readOnly struct {
	net.Conn // nil: nothing but Read, Write and Close is called before errSeen
	io.Reader
}

// Read reads from the prepared bytes.
func (r readOnly) Read(b []byte) (int, error) { return r.Reader.Read(b) }

// Write takes the parser's alert and drops it.
func (r readOnly) Write(b []byte) (int, error) { return len(b), nil }

// Close does nothing.
func (r readOnly) Close() error { return nil }

// SetDeadline does nothing; the bytes are all here.
func (r readOnly) SetDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (r readOnly) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (r readOnly) SetReadDeadline(time.Time) error { return nil }

// LocalAddr is empty; nothing asks for it in earnest.
func (r readOnly) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr is empty.
func (r readOnly) RemoteAddr() net.Addr { return &net.TCPAddr{} }
