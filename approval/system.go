package approval

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"cofferdam"
)

// Bounds of messages of systems outside. Source: docs/SPECIFICATION.md,
// "Approvals".
const (
	SignedWindow  = 5 * time.Minute // between a message's time and ours
	MaxSigned     = 60              // messages of one system that count in a minute, and refused ones on record
	maxSignatures = 4               // that one message has
)

// System is a program outside that brings people's answers, such as a chat bot. The
// operator has registered it; a message of it counts if one of its keys signed it.
type System struct {
	Keys   []ed25519.PublicKey // two while one replaces the other
	Proves bool                // the operator trusts it to know that a person is there
}

// Deliveries remembers the ids of messages for as long as they could count.
type Deliveries interface {
	// Deliver keeps an id of a system's, and forgets those before old; a Conflict if
	// it is kept already.
	Deliver(ctx context.Context, system, id string, at, old time.Time) error
}

// SystemsOptions is what Systems are made from; all of it but Now.
type SystemsOptions struct {
	List   map[string]System
	Store  Deliveries
	Record cofferdam.Recorder // of the host log
	Scope  cofferdam.Scope    // under which what is refused is on record
	Now    func() time.Time
}

// Systems are those outside that bring answers. Safe for concurrent use.
type Systems struct {
	o SystemsOptions

	mu    sync.Mutex
	since map[string]time.Time // begin of the minute that is counted, by system; guarded by mu
	count map[string]int       // guarded by mu
}

// NewSystems returns Systems.
func NewSystems(o SystemsOptions) *Systems {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Systems{o: o, since: map[string]time.Time{}, count: map[string]int{}}
}

// Has says whether there is a system of that name.
func (s *Systems) Has(name string) bool { _, ok := s.o.List[name]; return ok }

// messageID is what a message may be called.
var messageID = regexp.MustCompile(`^[A-Za-z0-9_-]{8,64}$`)

// unsigned is said of a system that there is none of and of a signature that does
// not hold.
const unsigned = "no system that is registered here has signed it"

// Admit takes a message once: one that a registered system signed, within minutes
// of its time, under an id that it has not used. It says whether the system is
// trusted to know that a person is there. What it refuses is on record.
func (s *Systems) Admit(ctx context.Context, m cofferdam.SignedMessage) (proves bool, err error) {
	now := s.o.Now()
	system, known := s.o.List[m.System]
	kind, why := cofferdam.Unauthenticated, ""
	sent, terr := strconv.ParseInt(m.Timestamp, 10, 64)
	switch {
	case !known || !system.signed(m):
		why = unsigned
	case terr != nil || now.Sub(time.Unix(sent, 0)).Abs() > SignedWindow:
		why = fmt.Sprintf("its time is not within %s of ours", SignedWindow)
	case !messageID.MatchString(m.ID):
		why = "its id is not 8 to 64 letters, digits, - and _"
	}
	if why == "" && s.beyond(m.System, now) {
		return false, s.exhausted()
	}
	if why == "" {
		err := s.o.Store.Deliver(ctx, m.System, m.ID, now, now.Add(-2*SignedWindow))
		if err == nil {
			return system.Proves, nil
		}
		if cofferdam.KindOf(err) != cofferdam.Conflict {
			return false, err
		}
		kind, why = cofferdam.Conflict, "a message with its id came before"
	}
	return false, s.Refuse(ctx, m, cofferdam.Question{Scope: s.o.Scope}, &cofferdam.Error{
		Op: "approval.Admit", Kind: kind, Subject: "message", Reason: why, Hint: "docs/approvals.md says what is signed, and how",
	})
}

// Refuse puts on record why a message counts for nothing, and returns why. Of a
// flood the first of a minute are on record, and the rest is told to wait.
func (s *Systems) Refuse(ctx context.Context, m cofferdam.SignedMessage, q cofferdam.Question, why error) error {
	if s.beyond("", s.o.Now()) {
		return s.exhausted()
	}
	fields := map[string]string{"why": why.Error(), "message": fmt.Sprintf("%.64q", m.ID)}
	if s.Has(m.System) {
		fields["system"] = m.System
	}
	if q.ID != "" {
		fields["question"] = string(q.ID)
	}
	if _, err := s.o.Record.Record(ctx, cofferdam.Event{
		Scope: q.Scope, Task: q.Task, Session: q.Session, Actor: platform(), Source: "approval", Kind: cofferdam.EventApprovalRefuse, Fields: fields, Durable: true,
	}); err != nil {
		return err
	}
	return why
}

func (s *Systems) exhausted() error {
	return &cofferdam.Error{Op: "approval.Admit", Kind: cofferdam.Exhausted, Subject: "messages", Reason: fmt.Sprintf("%d came within a minute", MaxSigned), Hint: "wait a minute"}
}

// beyond counts one more of a minute, and says whether that is too many.
func (s *Systems) beyond(of string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since[of]) >= time.Minute {
		s.since[of], s.count[of] = now, 0
	}
	s.count[of]++
	return s.count[of] > MaxSigned
}

// signed says whether one of the keys signed the message: its id, its time and its
// bytes, with dots between. An id or a time has no dot, so they have one reading.
func (s System) signed(m cofferdam.SignedMessage) bool {
	list := strings.Split(m.Signature, " ")
	if len(list) > maxSignatures || strings.Contains(m.ID+m.Timestamp, ".") {
		return false
	}
	text := append([]byte(m.ID+"."+m.Timestamp+"."), m.Body...)
	for _, one := range list {
		encoded, ok := strings.CutPrefix(one, "v1a,")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(signature) != ed25519.SignatureSize {
			continue
		}
		for _, k := range s.Keys {
			if len(k) == ed25519.PublicKeySize && ed25519.Verify(k, text, signature) {
				return true
			}
		}
	}
	return false
}
