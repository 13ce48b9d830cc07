package git

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestRequestsThatGrow: a question for commits that becomes too large when it is
// unpacked, or that git does not understand, is refused with that reason, and
// costs the next one nothing. See attacks/RES-06.txtar.
func TestRequestsThatGrow(t *testing.T) {
	w := newWorld(t, "")
	zip := func(write func(io.Writer)) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		write(z)
		z.Close()
		return b.Bytes()
	}
	wants := func(out io.Writer) {
		line := pkt("want " + id1 + "\n")
		for range maxWants/len(line) + 1 {
			io.WriteString(out, line)
		}
	}
	for _, c := range []struct {
		name, protocol string
		body           []byte
		want           []string // either
	}{
		{"many wants, version 2", "version=2", zip(func(out io.Writer) {
			io.WriteString(out, pkt("command=fetch\n")+"0001")
			wants(out)
		}), []string{"longer than what is read"}},
		// git gives up at the first of them; the rest is not always read.
		{"zeros", "", zip(func(out io.Writer) { out.Write(make([]byte, maxWants+1)) }), []string{"git does not understand it", "too large"}},
		{"no length", "", zip(func(out io.Writer) { io.WriteString(out, "zzzz") }), []string{"git does not understand it"}},
	} {
		code, answer := w.raw(fmt.Sprintf("POST /demo.git/git-upload-pack HTTP/1.1\nHost: git.cofferdam.internal\nContent-Type: application/x-git-upload-pack-request\nContent-Encoding: gzip\nGit-Protocol: %s\nContent-Length: %d", c.protocol, len(c.body)), c.body)
		found := false
		for _, s := range c.want {
			found = found || strings.Contains(answer, s)
		}
		if code != 200 || !strings.Contains(answer, "ERR cofferdam: ") || !found {
			t.Errorf("%s: %d %.300s, want %q", c.name, code, answer, c.want)
		}
	}
	w.clone() // the twin

	// What is beyond the limit is an error for whoever reads, and no end.
	for n, want := range map[int64]error{maxWants: nil, maxWants + 1: errTooLarge} {
		r := &http.Request{Header: http.Header{"Content-Encoding": {"gzip"}}}
		body, err := inflate(r, bytes.NewReader(zip(func(out io.Writer) { out.Write(make([]byte, n)) })), maxWants)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.Copy(io.Discard, body); got != maxWants || !errors.Is(err, want) || body.over.Load() != (want != nil) {
			t.Errorf("%d bytes: %d were read, %v", n, got, err)
		}
	}
}
