package vmmtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Faults are what a stub does instead of its work, by "METHOD /path".
const (
	Hang    = "hang"    // it says nothing
	Junk    = "junk"    // 200, and what is no JSON
	Endless = "endless" // a body that goes on for ever
	Close   = "close"   // it closes the connection
	Refuse  = "refuse"  // 400, with text that means harm to a terminal
)

// Hostile is the text of Refuse.
const Hostile = "\x1b[2Jno\nhint: run rm -rf /"

// maxAsked bounds what a stub reads of a request.
const maxAsked = 1 << 20

// Stub answers as a monitor does whose API a description is of.
type Stub struct {
	Description Description
	// Act does what a call asks for, of which Check has judged the body. A nil
	// answer is 204; an error 400, in the form of Fail.
	Act func(method, path string, body map[string]any) (answer any, err error)
	// Fail makes an error's body; nil: a list of texts.
	Fail func(reason string) any
	// Faults by "METHOD /path".
	Faults map[string]string

	mu    sync.Mutex
	asked []string // guarded by mu
}

// Asked are all calls so far, "METHOD /path".
func (s *Stub) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// ServeHTTP implements http.Handler.
func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := r.Method + " " + r.URL.Path
	s.mu.Lock()
	s.asked = append(s.asked, call)
	s.mu.Unlock()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAsked))
	if err == nil && len(body) > 0 && r.Header.Get("Content-Type") != "application/json" {
		err = fmt.Errorf("%s: its body is %q", call, r.Header.Get("Content-Type"))
	}
	var object map[string]any
	if err == nil {
		object, err = s.Description.Check(r.Method, r.URL.Path, body)
	}
	if err != nil {
		s.fail(w, err.Error())
		return
	}
	if s.misbehave(w, r, s.Faults[call]) {
		return
	}
	answer, err := s.Act(r.Method, r.URL.Path, object)
	switch {
	case err != nil:
		s.fail(w, err.Error())
	case answer == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // who asked may be gone
	}
}

func (s *Stub) fail(w http.ResponseWriter, reason string) {
	var body any = []string{"the API refuses", reason}
	if s.Fail != nil {
		body = s.Fail(reason)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(body)
}

// misbehave does a fault, if there is one.
func (s *Stub) misbehave(w http.ResponseWriter, r *http.Request, fault string) bool {
	switch fault {
	case Hang:
		<-r.Context().Done()
	case Junk:
		_, _ = io.WriteString(w, `{"state": `)
	case Endless:
		for chunk := strings.Repeat(" ", 64<<10); r.Context().Err() == nil; {
			if _, err := io.WriteString(w, chunk); err != nil {
				break
			}
		}
	case Close:
		panic(http.ErrAbortHandler)
	case Refuse:
		s.fail(w, Hostile)
	default:
		return false
	}
	return true
}
