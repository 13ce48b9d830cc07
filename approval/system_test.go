package approval

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
)

// ids is Deliveries of this test.
type ids struct {
	mu   sync.Mutex
	kept map[string]time.Time
}

func (i *ids) Deliver(_ context.Context, system, id string, at, old time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for k, t := range i.kept {
		if t.Before(old) {
			delete(i.kept, k)
		}
	}
	if _, there := i.kept[system+" "+id]; there {
		return &cofferdam.Error{Kind: cofferdam.Conflict, Reason: "came before"}
	}
	i.kept[system+" "+id] = at
	return nil
}

func key(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string([]byte{b}), 32)))
}

func public(b byte) ed25519.PublicKey { return key(b).Public().(ed25519.PublicKey) }

// message is what a system signs with a key.
func message(system, id string, at time.Time, body string, k ed25519.PrivateKey) cofferdam.SignedMessage {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return cofferdam.SignedMessage{
		System: system, ID: id, Timestamp: stamp, Body: []byte(body),
		Signature: "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(k, []byte(id+"."+stamp+"."+body))),
	}
}

// TestMessagesOfSystems: one that a registered key signed counts, once, within
// minutes of its time; whatever is changed, moved or said again does not, and is on
// record.
func TestMessagesOfSystems(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	rec := &record{}
	s := NewSystems(SystemsOptions{
		List:  map[string]System{"chat": {Keys: []ed25519.PublicKey{public(1), public(2)}}, "desk": {Keys: []ed25519.PublicKey{public(3)}, Proves: true}},
		Store: &ids{kept: map[string]time.Time{}}, Record: rec, Now: func() time.Time { return now },
	})
	admit := func(m cofferdam.SignedMessage) (bool, error) { return s.Admit(t.Context(), m) }
	good := message("chat", "message-1", now, `{"allow":true}`, key(1))
	if proves, err := admit(good); err != nil || proves {
		t.Fatalf("%v, %v", proves, err)
	}
	if proves, err := admit(message("desk", "message-1", now, `{}`, key(3))); err != nil || !proves {
		t.Errorf("of a system that proves: %v, %v", proves, err)
	}
	if _, err := admit(message("chat", "message-2", now.Add(-SignedWindow), `{}`, key(2))); err != nil {
		t.Errorf("by the other key, just in time: %v", err)
	}
	two := message("chat", "message-3", now, `{}`, key(2)) // as while a system replaces its key
	two.Signature = "v1,AAAA v1a,AAAA " + message("chat", "message-3", now, `{}`, key(9)).Signature + " " + two.Signature
	if _, err := admit(two); err != nil {
		t.Errorf("one of several signatures holds: %v", err)
	}
	change := func(f func(*cofferdam.SignedMessage)) cofferdam.SignedMessage {
		m := message("chat", "message-9", now, `{"allow":false}`, key(1))
		f(&m)
		return m
	}
	bad := map[string]cofferdam.SignedMessage{
		"said again":          good,
		"another key":         message("chat", "message-9", now, `{}`, key(9)),
		"another's key":       message("chat", "message-9", now, `{}`, key(3)),
		"no such system":      message("post", "message-9", now, `{}`, key(1)),
		"too old":             message("chat", "message-9", now.Add(-SignedWindow-time.Second), `{}`, key(1)),
		"of the future":       message("chat", "message-9", now.Add(SignedWindow+time.Second), `{}`, key(1)),
		"no id":               message("chat", "", now, `{}`, key(1)),
		"an id with dots":     message("chat", "message.9", now, `{}`, key(1)),
		"a long id":           message("chat", strings.Repeat("a", 65), now, `{}`, key(1)),
		"body changed":        change(func(m *cofferdam.SignedMessage) { m.Body = []byte(`{"allow":true}`) }),
		"id changed":          change(func(m *cofferdam.SignedMessage) { m.ID = "message-8" }),
		"time changed":        change(func(m *cofferdam.SignedMessage) { m.Timestamp = strconv.FormatInt(now.Unix()+1, 10) }),
		"no time":             change(func(m *cofferdam.SignedMessage) { m.Timestamp = "" }),
		"no signature":        change(func(m *cofferdam.SignedMessage) { m.Signature = "" }),
		"a symmetric one":     change(func(m *cofferdam.SignedMessage) { m.Signature = "v1" + strings.TrimPrefix(m.Signature, "v1a") }),
		"too many":            change(func(m *cofferdam.SignedMessage) { m.Signature = strings.Repeat("v1a,AAAA ", 4) + m.Signature }),
		"moved to a dot":      {System: "chat", ID: good.ID + "." + good.Timestamp, Timestamp: "", Body: good.Body, Signature: good.Signature},
		"of another system's": {System: "desk", ID: good.ID, Timestamp: good.Timestamp, Body: good.Body, Signature: good.Signature},
	}
	for name, m := range bad {
		before := len(rec.events)
		if _, err := admit(m); err == nil || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if len(rec.events) != before+1 || rec.events[before].Kind != cofferdam.EventApprovalRefuse {
			t.Errorf("%s is not on record", name)
		}
	}
	rec.broken = true
	if _, err := admit(message("chat", "message-9", now, `{}`, key(9))); err == nil {
		t.Error("without a record")
	}
}

// TestFloodsOfMessages: of one system so many count in a minute, and what is refused
// fills no record; another system's go on.
func TestFloodsOfMessages(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	rec := &record{}
	s := NewSystems(SystemsOptions{
		List:  map[string]System{"chat": {Keys: []ed25519.PublicKey{public(1)}}, "desk": {Keys: []ed25519.PublicKey{public(3)}}},
		Store: &ids{kept: map[string]time.Time{}}, Record: rec, Now: func() time.Time { return now },
	})
	passed := 0
	for n := range 2 * MaxSigned {
		if _, err := s.Admit(t.Context(), message("chat", fmt.Sprint("message-", n), now, `{}`, key(1))); err == nil {
			passed++
		} else if cofferdam.KindOf(err) != cofferdam.Exhausted {
			t.Error(err)
		}
		_, _ = s.Admit(t.Context(), message("chat", fmt.Sprint("message-", n), now, `{}`, key(9))) // a stranger's
	}
	if passed != MaxSigned || len(rec.events) != MaxSigned {
		t.Errorf("%d counted, %d are on record", passed, len(rec.events))
	}
	if _, err := s.Admit(t.Context(), message("desk", "message-1", now, `{}`, key(3))); err != nil {
		t.Errorf("another system: %v", err)
	}
	now = now.Add(time.Minute)
	if _, err := s.Admit(t.Context(), message("chat", "message-later", now, `{}`, key(1))); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}
