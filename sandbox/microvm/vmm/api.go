package vmm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"cofferdam"
	"cofferdam/sandbox/cage"
)

// Bounds of a talk with a monitor over HTTP. What answers has read what its guest
// wrote.
const (
	// callPatience bounds one call: each is a matter of milliseconds, but for a
	// host that is overloaded.
	callPatience = 20 * time.Second
	// MemoryPatience bounds a call that writes or reads a machine's memory: 32 GiB
	// at 300 MB/s.
	MemoryPatience = 2 * time.Minute
	// watchEvery is how often a monitor is asked whether it still answers. One that
	// does not within callPatience is ended.
	watchEvery = 30 * time.Second

	maxHead = 16 << 10 // bytes of an answer's header
	maxBody = 1 << 20  // and of its body: a machine's whole description has some ten KiB
	maxTold = 300      // bytes of what is repeated to a person
)

// API is a monitor's, over HTTP on a unix socket. Calls go one after the other.
// Safe for concurrent use.
type API struct {
	monitor  string // as a person calls it
	prefix   string // of every path
	client   http.Client
	hung     func(why string) // ends a monitor that does not answer
	every    time.Duration    // between two questions whether it does; shorter in tests
	patience time.Duration    // of a call that names none; shorter in tests

	mu sync.Mutex // held during a call
}

// NewAPI speaks to a monitor through dial, a connection for each call. hung is
// called when it does not answer in time, or never ends its answer.
func NewAPI(monitor, prefix string, dial func(context.Context) (*os.File, error), hung func(why string)) *API {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		f, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		defer f.Close() // the connection has a duplicate
		return net.FileConn(f)
	}
	return &API{monitor: monitor, prefix: prefix, hung: hung, every: watchEvery, patience: callPatience, client: http.Client{
		Transport:     &http.Transport{DialContext: connect, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHead},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Call asks for one thing. body, if not nil, is sent as JSON; an answer's body is
// decoded into answer if that is not nil. patience 0 is that of most calls.
func (a *API) Call(ctx context.Context, method, path string, body, answer any, patience time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.call(ctx, method, path, body, answer, patience)
}

// StateIs checks in what state the monitor says at path that its machine is.
func (a *API) StateIs(ctx context.Context, path, want string) error {
	var got struct {
		State string `json:"state"`
	}
	if err := a.Call(ctx, http.MethodGet, path, nil, &got, 0); err != nil {
		return err
	}
	if got.State != want {
		return fmt.Errorf("the monitor says that its machine is %.40q, not %q", got.State, want)
	}
	return nil
}

// call is Call with mu held.
func (a *API) call(ctx context.Context, method, path string, body, answer any, patience time.Duration) error {
	if patience == 0 {
		patience = a.patience
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		content = bytes.NewReader(data)
	}
	ask, err := http.NewRequestWithContext(limited, method, "http://localhost"+a.prefix+path, content)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	ask.Header.Set("Accept", "application/json")
	if body != nil {
		ask.Header.Set("Content-Type", "application/json")
	}
	status, data, err := a.exchange(ask)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx) // the caller has gone: that says nothing of the monitor
	case err != nil && limited.Err() != nil:
		why := fmt.Sprintf("it did not answer %s %s within %s", method, path, patience)
		a.hung(why)
		return a.fault(method, path, cofferdam.Unavailable, why, err)
	case err != nil:
		return a.fault(method, path, cofferdam.Unavailable, "its answer: "+told([]byte(err.Error())), err)
	case status != http.StatusOK && status != http.StatusNoContent:
		return a.fault(method, path, kindOf(status), fmt.Sprintf("it answers %d: %s", status, fault(data)), nil)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return a.fault(method, path, cofferdam.Unavailable, "its answer: "+told([]byte(err.Error())), err)
	}
	return nil
}

// exchange sends one request and reads the whole answer, within the bounds.
func (a *API) exchange(ask *http.Request) (status int, data []byte, err error) {
	r, err := a.client.Do(ask)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	data, err = io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(data) > maxBody {
		err = fmt.Errorf("it has more than %d bytes", maxBody)
	}
	return r.StatusCode, data, err
}

// kindOf is what an HTTP status of a monitor is to us: 4xx but the two that speak
// of the machine's state say that we asked for what it does not have.
func kindOf(status int) cofferdam.Kind {
	switch {
	case status == http.StatusConflict || status == http.StatusMethodNotAllowed || status == http.StatusTooManyRequests:
		return cofferdam.Conflict
	case status == http.StatusNotFound:
		return cofferdam.NotFound
	case status >= 400 && status < 500:
		return cofferdam.Invalid
	}
	return cofferdam.Unavailable
}

// fault is what a monitor says went wrong: a member of an object, strings of a
// list, or text.
func fault(data []byte) string {
	var object struct {
		Message string `json:"fault_message"`
	}
	var list []string
	switch {
	case json.Unmarshal(data, &object) == nil && object.Message != "":
		return told([]byte(object.Message))
	case json.Unmarshal(data, &list) == nil && len(list) > 0:
		return told([]byte(strings.Join(list, ": ")))
	case len(bytes.TrimSpace(data)) == 0:
		return "it gives no reason"
	}
	return told(data)
}

// told makes text of a monitor's fit for a person's terminal: one line, printable,
// of bounded length.
func told(b []byte) string {
	b = b[:min(len(b), maxTold)]
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "?"))
	return strings.Join(strings.Fields(clean), " ")
}

func (a *API) fault(method, path string, kind cofferdam.Kind, reason string, err error) error {
	return &cofferdam.Error{
		Op: "vmm.Call", Kind: kind, Subject: fmt.Sprintf("%s: %s %s", a.monitor, method, path), Reason: reason, Err: err,
		Hint: "destroy the box and start a new one; cofferdam doctor checks this host",
	}
}

// Watch asks a monitor every so often for path, and ends one that does not answer,
// or by nothing that is JSON, until it has ended. A call that is under way has a
// bound of its own.
func (a *API) Watch(p *cage.Process, path string) {
	for {
		select {
		case <-p.Ended:
			return
		case <-time.After(a.every):
		}
		if !a.mu.TryLock() {
			continue
		}
		var alive map[string]any
		err := a.call(context.Background(), http.MethodGet, path, nil, &alive, a.patience)
		a.mu.Unlock()
		if err != nil {
			a.hung("it does not say that it is alive: " + told([]byte(err.Error())))
		}
	}
}
