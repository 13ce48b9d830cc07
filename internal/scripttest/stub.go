package scripttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdStub serves FILE as a model provider on loopback until the end of the
// script; NAME is its URL, and what it was asked is written to $OUT/NAME.log.
// Unlike a rehearsal it understands no protocol: it sends the bytes that it is
// told to, when it is told to. FILE has answers, each with a first line of method
// and path, and then what is done, a line each:
//
//	if TEXT            the answer holds only if head or body contains TEXT
//	once               the answer is given once
//	status N           instead of 200
//	header NAME: TEXT
//	send TEXT          with Go's escapes
//	file NAME          its bytes, as they stand
//	pause DURATION
//	fetch              what providers do with addresses: each in the body is asked for
//	cut                the connection ends without an end of the answer
//
// The first answer that holds is given.
func cmdStub(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "stub NAME FILE")
	s := &stub{log: filepath.Join(ts.Getenv("OUT"), args[0]+".log"), abs: ts.MkAbs}
	ts.Check(s.parse(ts.ReadFile(args[1])))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { _ = server.Serve(l) }() // until it is closed
	of(ts).labs[args[0]] = &lab{stop: func() { cancel(); server.Close() }}
	ts.Setenv(args[0], "http://"+l.Addr().String())
}

var stubAddress = regexp.MustCompile(`http://127[0-9.:]+/[^"\\ ]*`)

type stub struct {
	log     string
	abs     func(string) string // a file of the script's
	mu      sync.Mutex
	answers []*stubAnswer // guarded by mu, since once changes them
}

type stubAnswer struct {
	method, path string
	contains     []string
	once, used   bool
	do           [][2]string
}

func (s *stub) parse(text string) error {
	for i, line := range strings.Split(text, "\n") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "", "#":
		case "GET", "POST":
			s.answers = append(s.answers, &stubAnswer{method: verb, path: rest})
		default:
			if len(s.answers) == 0 {
				return fmt.Errorf("stub: line %d stands before any method and path", i+1)
			}
			if verb == "file" {
				rest = s.abs(rest)
			}
			if err := s.answers[len(s.answers)-1].add(verb, rest); err != nil {
				return fmt.Errorf("stub: line %d: %w", i+1, err)
			}
		}
	}
	return nil
}

func (a *stubAnswer) add(verb, rest string) error {
	var err error
	switch verb {
	case "if":
		a.contains = append(a.contains, rest)
		return nil
	case "once":
		a.once = true
		return nil
	case "status":
		_, err = strconv.Atoi(rest)
	case "pause":
		_, err = time.ParseDuration(rest)
	case "send":
		rest, err = strconv.Unquote(`"` + rest + `"`)
	case "header", "cut", "fetch", "file":
	default:
		err = fmt.Errorf("unknown instruction %q", verb)
	}
	a.do = append(a.do, [2]string{verb, rest})
	return err
}

// ServeHTTP implements http.Handler.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<20)) // what is missing of it shows in the log
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s\n", r.Method, r.RequestURI)
	_ = r.Header.Write(&head) // to memory
	text := strings.ReplaceAll(head.String(), "\r\n", "\n") + string(body)
	a := s.take(r, text)
	if a == nil {
		http.Error(w, "the stub has no answer", http.StatusTeapot)
		return
	}
	flush := http.NewResponseController(w).Flush
	for _, d := range a.do {
		switch verb, rest := d[0], d[1]; verb {
		case "status":
			code, _ := strconv.Atoi(rest) // parse has looked
			w.WriteHeader(code)
		case "header":
			name, value, _ := strings.Cut(rest, ": ")
			w.Header().Set(name, value)
		case "send":
			io.WriteString(w, rest)
			_ = flush() // the client may be gone
		case "file":
			if f, err := os.Open(rest); err == nil { // what is missing shows in the script
				_, _ = io.Copy(w, f)
				f.Close()
			}
		case "pause":
			d, _ := time.ParseDuration(rest) // parse has looked
			select {
			case <-time.After(d):
			case <-r.Context().Done():
				return
			}
		case "fetch":
			for _, u := range stubAddress.FindAllString(string(body), -1) {
				client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
				if resp, err := client.Get(u); err == nil {
					resp.Body.Close()
				}
			}
		case "cut":
			panic(http.ErrAbortHandler)
		}
	}
}

// take writes down what was asked and finds the answer.
func (s *stub) take(r *http.Request, text string) *stubAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintf(f, "%s\n----\n", text)
		f.Close()
	}
next:
	for _, a := range s.answers {
		if a.method != r.Method || a.path != r.URL.Path || a.used {
			continue
		}
		for _, want := range a.contains {
			if !strings.Contains(text, want) {
				continue next
			}
		}
		a.used = a.once
		return a
	}
	return nil
}
