package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is spoken by both sides; they refuse any other.
const Version = 2

// Kind says what a frame is.
type Kind byte

// The kinds of frame, as the package comment lists them.
const (
	KindConfig   Kind = 1
	KindStart    Kind = 2
	KindStdin    Kind = 3
	KindStdinEnd Kind = 4
	KindKill     Kind = 5
	KindLimit    Kind = 6
	KindRelieve  Kind = 7
	KindQuiet    Kind = 8
	KindWake     Kind = 9
	KindCount    Kind = 10

	KindHello      Kind = 64
	KindStarted    Kind = 65
	KindOutput     Kind = 66
	KindOutputEnd  Kind = 67
	KindExit       Kind = 68
	KindStdinLimit Kind = 69
	KindKilled     Kind = 70
	KindIsQuiet    Kind = 71
	KindAwake      Kind = 72
	KindCounted    Kind = 73
)

// Bounds of the talk.
const (
	// ChunkSize is the most output or input that one frame carries: the size of
	// a Linux pipe, so that one read empties one.
	ChunkSize = 64 << 10
	// MaxStart bounds a start frame: Linux itself takes 2 MiB of arguments and
	// environment (a quarter of the 8 MiB stack), so twice that is never too small.
	MaxStart = 4 << 20
	// Window is how far output may run ahead of what the journal holds, and
	// input ahead of what the command has read.
	Window = 256 << 10
	// headerSize is length, kind and command.
	headerSize = 9
)

// Frame is one message.
type Frame struct {
	Kind    Kind
	Command uint32
	Payload []byte
}

// ErrProtocol is what a peer gets that breaks the rules of the package comment.
var ErrProtocol = errors.New("protocol broken")

// AppendFrame appends f to b as it goes over the pipe.
func AppendFrame(b []byte, f Frame) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(5+len(f.Payload)))
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint32(b, f.Command)
	return append(b, f.Payload...)
}

// Reader reads frames. A payload is valid until the next call of Next.
type Reader struct {
	r   io.Reader
	max int
	buf []byte
}

// NewReader reads frames from r whose payload is at most max bytes.
func NewReader(r io.Reader, max int) *Reader { return &Reader{r: r, max: max} }

// Next returns the next frame; io.EOF only at the border between two.
func (r *Reader) Next() (Frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return Frame{}, err
	}
	n := int64(binary.BigEndian.Uint32(h[:4])) - 5
	if n < 0 || n > int64(r.max) {
		return Frame{}, fmt.Errorf("%w: frame of %d bytes", ErrProtocol, n)
	}
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	p := r.buf[:n]
	if _, err := io.ReadFull(r.r, p); err != nil {
		return Frame{}, io.ErrUnexpectedEOF
	}
	return Frame{Kind: Kind(h[4]), Command: binary.BigEndian.Uint32(h[5:]), Payload: p}, nil
}
