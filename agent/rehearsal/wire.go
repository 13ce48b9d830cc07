package rehearsal

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// piece is the size of one streamed part, in bytes or the next rune boundary:
// small, so that readers are exercised with many events.
const piece = 24

// pieceShare bounds how many pieces a text has: a huge one has larger pieces.
const pieceShare = 1024

// wire sends an answer, and does to it what the script says: slow, cut, broken.
type wire struct {
	w      http.ResponseWriter
	ctx    context.Context // ends when the client goes
	answer answer
	events int
	sent   int
}

// whole sends an answer in one piece.
func (s *wire) whole(v any) {
	for _, step := range s.answer.steps {
		s.pause(step.duration)
	}
	data := append(encode(v), '\n')
	if s.answer.malformed > 0 {
		data = broken(data)
	}
	s.w.Header().Set("Content-Type", "application/json")
	s.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	s.write(data)
}

// begin sends the headers of a stream.
func (s *wire) begin(contentType string) {
	s.w.Header().Set("Content-Type", contentType)
	s.w.Header().Set("Cache-Control", "no-cache")
}

// sse sends one server-sent event; the name may be empty.
func (s *wire) sse(name string, v any) {
	if name != "" {
		name = "event: " + name + "\n"
	}
	s.event(name+"data: ", encode(v), "\n\n")
}

// event sends data as one event, framed by before and after.
func (s *wire) event(before string, data []byte, after string) {
	if s.events++; s.events > 1 {
		s.pause(s.answer.slow)
	}
	if s.events == s.answer.malformed {
		data = broken(data)
	}
	s.write([]byte(before + string(data) + after))
	if s.events == s.answer.cutEvents {
		panic(http.ErrAbortHandler) // ends the connection without an end of the answer
	}
}

// broken makes JSON that no reader can take.
func broken(data []byte) []byte { return append(data[:len(data)/2:len(data)/2], `{"broken`...) }

// write sends bytes at once, up to where the script cuts.
func (s *wire) write(data []byte) {
	left := s.answer.cutSize - s.sent
	cut := s.answer.cutSize > 0 && len(data) >= left
	if cut {
		data = data[:left]
	}
	n, err := s.w.Write(data)
	s.sent += n
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
	if cut || err != nil {
		panic(http.ErrAbortHandler)
	}
}

// pause keeps the stream silent; a client that goes meanwhile ends the answer.
func (s *wire) pause(d time.Duration) {
	if !sleep(s.ctx, d) {
		panic(http.ErrAbortHandler)
	}
}

// pieces cuts text between runes.
func pieces(text string) []string {
	size := max(piece, len(text)/pieceShare)
	var parts []string
	begin := 0
	for i := range text {
		if i-begin >= size {
			parts = append(parts, text[begin:i])
			begin = i
		}
	}
	return append(parts, text[begin:])
}
