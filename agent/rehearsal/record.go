package rehearsal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"cofferdam"
)

// Bounds of a recording.
const (
	maxAnswer   = 64 << 20 // bytes of one answer that is recorded
	maxRecorded = 1000     // answers of one recording; what follows passes unrecorded
)

// Recorder passes requests on to a real provider and writes what it answered as
// a script that Parse reads. The key is attached on the way out, in place of
// whatever the client sent; it is never written, also where an answer repeats
// it. Neither are the prompts, but for a line where that alone tells two
// conversations apart.
type Recorder struct {
	Provider *url.URL
	Key      cofferdam.Sensitive
	File     string            // the script; written anew after each answer
	Problem  func(text string) // is told what could not be recorded

	mu    sync.Mutex
	taken []taken
}

// Serve records on l until ctx ends; it closes l.
func (r *Recorder) Serve(ctx context.Context, l net.Listener) error { return serve(ctx, l, r) }

// ServeHTTP passes one request on.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	p, q := r.question(in)
	body, err := io.ReadAll(http.MaxBytesReader(w, in.Body, maxBody))
	if err != nil {
		fail(w, protocolOf(in), http.StatusBadRequest, "reading the request: "+err.Error())
		return
	}
	if p != nil {
		q.turn, q.size = 1, len(body)
		if err := p.read(body, &q); err != nil {
			r.problem("a request could not be read: " + err.Error())
			p = nil
		}
	}
	resp, err := r.forward(in, body)
	if err != nil {
		r.problem(err.Error())
		fail(w, protocolOf(in), http.StatusBadGateway, "the provider did not answer")
		return
	}
	defer resp.Body.Close()
	copied, err := pass(w, resp)
	switch {
	case errors.Is(err, errTooLarge):
		r.problem(err.Error())
	case err != nil:
		r.problem("an answer ended early, and is not recorded: " + err.Error())
		panic(http.ErrAbortHandler) // the client sees the end that we saw
	case p != nil:
		r.take(p, q, resp, copied)
	}
}

// question says which protocol a request that asks for an answer speaks; nil:
// it asks for something else, and only passes.
func (r *Recorder) question(in *http.Request) (protocol, question) {
	path := in.URL.Path
	for suffix, p := range map[string]protocol{"/messages": anthropic{}, "/responses": responses{}, "/chat/completions": chat{}} {
		if in.Method == http.MethodPost && strings.HasSuffix(path, suffix) {
			return p, question{}
		}
	}
	_, call, _ := strings.Cut(path, "/models/")
	model, method, _ := strings.Cut(call, ":")
	if method == "generateContent" || method == "streamGenerateContent" {
		return gemini{}, question{model: model}
	}
	return nil, question{}
}

// forward sends the request to the provider, with its key and no other.
func (r *Recorder) forward(in *http.Request, body []byte) (*http.Response, error) {
	u := *r.Provider
	u.Path = joined(u.Path, in.URL.Path)
	query := in.URL.Query()
	query.Del("key")
	u.RawQuery = query.Encode()
	out, err := http.NewRequestWithContext(in.Context(), in.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range in.Header {
		switch name {
		case "Authorization", "X-Api-Key", "X-Goog-Api-Key", "Cookie", "Connection", "Accept-Encoding", "Content-Length", "Te", "Upgrade":
		default:
			out.Header[name] = values
		}
	}
	out.Header.Set("Accept-Encoding", "identity")
	if r.Key != "" {
		switch protocolOf(in).(type) {
		case anthropic:
			out.Header.Set("X-Api-Key", string(r.Key))
		case gemini:
			out.Header.Set("X-Goog-Api-Key", string(r.Key))
		default:
			out.Header.Set("Authorization", "Bearer "+string(r.Key))
		}
	}
	// A redirect would take the key to where nobody named.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(out)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return nil, fmt.Errorf("asking %s: %w", r.Provider.Host, err)
	}
	return resp, nil
}

// joined puts a path behind the provider's own, without its version twice.
func joined(base, path string) string {
	base = strings.TrimSuffix(base, "/")
	i := strings.LastIndexByte(base, '/')
	if i >= 0 && strings.HasPrefix(path, base[i:]+"/") {
		base = base[:i]
	}
	return base + path
}

var errTooLarge = fmt.Errorf("an answer is larger than %d bytes, and is not recorded", maxAnswer)

// pass sends the answer on as it comes, and returns what it was.
func pass(w http.ResponseWriter, resp *http.Response) ([]byte, error) {
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	var kept bytes.Buffer
	buffer := make([]byte, 32<<10)
	var large error
	for {
		n, err := resp.Body.Read(buffer)
		if _, werr := w.Write(buffer[:n]); werr != nil {
			return nil, werr
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if large == nil && kept.Len()+n > maxAnswer {
			large = errTooLarge
		}
		if large == nil {
			kept.Write(buffer[:n])
		}
		if err == io.EOF {
			return kept.Bytes(), large
		}
		if err != nil {
			return nil, err
		}
	}
}

// take keeps one answer and writes the script anew.
func (r *Recorder) take(p protocol, q question, resp *http.Response, body []byte) {
	t, err := taking(p, resp, body)
	if err != nil {
		r.problem("an answer could not be read: " + err.Error())
		return
	}
	t.question = q
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.taken) >= maxRecorded {
		r.problem(fmt.Sprintf("more than %d answers: the recording is full", maxRecorded))
		return
	}
	r.taken = append(r.taken, t)
	if err := r.write(); err != nil {
		r.problem(err.Error())
	}
}

func (r *Recorder) problem(text string) {
	if r.Problem != nil {
		r.Problem(r.redact(text))
	}
}

func (r *Recorder) redact(text string) string {
	if r.Key == "" {
		return text
	}
	return strings.ReplaceAll(text, string(r.Key), "[key]")
}

// write puts the script in place of the last one. Its caller holds mu.
func (r *Recorder) write() error {
	text := "# What " + r.Provider.Host + " answered, recorded on " + time.Now().UTC().Format(time.DateOnly) + ".\n" + written(r.taken)
	f, err := os.CreateTemp(filepath.Dir(r.File), ".recording-")
	if err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}
	_, err = f.WriteString(r.redact(text))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), r.File)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error that counts is the first
		return fmt.Errorf("writing the recording: %w", err)
	}
	return nil
}

// written is answers as Parse reads them.
func written(all []taken) string {
	var b strings.Builder
	for i, t := range all {
		try, last := 1, true
		var others []question // that the same conditions would hold for
		for k, o := range all {
			switch same := o.digest() == t.digest(); {
			case same && k < i:
				try++
			case same && k > i:
				last = false
			case !same && o.turn == t.turn && (len(o.tools) == 0) == (len(t.tools) == 0):
				others = append(others, o.question)
			}
		}
		fmt.Fprintf(&b, "\nturn %d\n", t.turn)
		if len(t.tools) == 0 {
			b.WriteString("bare\n")
		}
		b.WriteString(t.telling(others))
		if !last {
			fmt.Fprintf(&b, "try %d\n", try)
		}
		t.write(&b)
	}
	return b.String()
}

// telling is a condition that holds for this question and none of the others.
func (q *question) telling(others []question) string {
	if len(others) == 0 {
		return ""
	}
	for _, c := range []struct {
		verb string
		text func(question) string
	}{
		{"asked", func(q question) string { return q.asked }},
		{"after", func(q question) string { return q.result }},
	} {
	lines:
		for _, line := range strings.Split(c.text(*q), "\n") {
			line = strings.TrimSpace(line)
			if len(line) < 3 || len(line) > 300 {
				continue
			}
			for _, o := range others {
				if strings.Contains(c.text(o), line) {
					continue lines
				}
			}
			return c.verb + " " + line + "\n"
		}
	}
	return "# nothing tells this answer from another of the same turn\n"
}

// write writes what was answered.
func (t *taken) write(b *strings.Builder) {
	if t.status >= http.StatusBadRequest {
		if n, err := strconv.Atoi(t.retryAfter); err == nil && n > 0 {
			fmt.Fprintf(b, "retry-after %d\n", min(n, int(maxWait/time.Second)))
		}
		fmt.Fprintf(b, "fail %d %s\n", t.status, strings.Join(strings.Fields(t.failure), " "))
		return
	}
	for _, s := range t.steps {
		if s.verb == "tool" {
			fmt.Fprintf(b, "tool %s %s\n", s.name, s.input)
			continue
		}
		fmt.Fprintf(b, "%s %s\n", s.verb, strings.ReplaceAll(s.text, "\n", "\n| "))
	}
	if len(t.steps) == 0 {
		b.WriteString("empty\n")
	}
	if t.model != "" && t.model != ModelName {
		fmt.Fprintf(b, "as %s\n", t.model)
	}
	if t.failure != "" {
		fmt.Fprintf(b, "break %s\n", strings.Join(strings.Fields(t.failure), " "))
	}
	if t.usage != (usage{}) {
		fmt.Fprintf(b, "usage %d %d %d\n", t.usage.in, t.usage.out, t.usage.cached)
	}
}
