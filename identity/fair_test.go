package identity

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"cofferdam"
)

// waiting says how many wait for a place.
func (t *turns) waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.lines {
		n += len(q.waits)
	}
	return n
}

// until waits for a state, and not for a time.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// One source that fills its queue has another wait for one of its own at most, is
// told when it has too many, and who goes away gives its turn to the next.
func TestPlacesAreSharedOut(t *testing.T) {
	p := &turns{free: 1}
	if err := p.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	enter := func(ctx context.Context, source string) {
		before := p.waiting()
		all.Go(func() {
			if p.enter(WithSource(ctx, source)) != nil {
				return
			}
			mu.Lock()
			order = append(order, source)
			mu.Unlock()
			p.leave()
		})
		until(t, "it does not wait", func() bool { return p.waiting() == before+1 })
	}
	for range maxWaiting - 1 {
		enter(t.Context(), "eve")
	}
	gone, cancel := context.WithCancel(t.Context())
	enter(gone, "eve")
	if err := p.enter(WithSource(t.Context(), "eve")); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("one more than %d: %v", maxWaiting, err)
	}
	enter(t.Context(), "ann")
	enter(t.Context(), "ann")
	cancel()
	until(t, "who has gone waits", func() bool { return p.waiting() == maxWaiting+1 })
	p.leave()
	all.Wait()
	want := []string{"eve", "ann", "eve", "ann", "eve", "eve", "eve", "eve", "eve"}
	if fmt.Sprint(order) != fmt.Sprint(want) || p.free != 1 || len(p.lines) != 0 {
		t.Errorf("%v, %d free, %d wait", order, p.free, p.waiting())
	}
	// And so many sources at a time.
	if err := p.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	order = nil
	for i := range maxSources {
		enter(t.Context(), fmt.Sprint(i))
	}
	if err := p.enter(WithSource(t.Context(), "late")); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("one source more than %d: %v", maxSources, err)
	}
	p.leave()
	all.Wait()
	if len(order) != maxSources || p.free != 1 {
		t.Errorf("%d had a place, %d free", len(order), p.free)
	}
}

// A stranger who guesses at ann's password locks neither her out nor what she
// proves; strangers together have a bound all the same, and one who guesses at
// somebody who is not here is told the same after the same.
func TestStrangerLocksNobodyOut(t *testing.T) {
	d, m, c, _, _ := signing(t, false)
	eve, home := WithSource(t.Context(), "uid 666"), WithSource(t.Context(), "uid 1000")
	try := func(ctx context.Context, name, password string) error {
		_, _, err := d.SignIn(ctx, cofferdam.LoginRequest{Name: name, Password: password}, acme.Organization)
		return err
	}
	for range MaxWrong {
		if err := try(eve, "ann", "not her password"); err == nil {
			t.Fatal("a wrong password signs in")
		}
	}
	if err := try(eve, "ann", word); err == nil {
		t.Error("who was wrong too often goes on guessing")
	}
	if err := try(home, "ann", word); err != nil {
		t.Errorf("a stranger locked ann out: %v", err)
	}
	ann := cofferdam.PersonID(m.memberID("ann"))
	if _, err := d.Prove(eve, ann, cofferdam.Proof{Kind: Password, Password: word}, about); err != nil {
		t.Errorf("a stranger keeps ann from proving that she is there: %v", err)
	}
	for i := range MaxGuesses { // from everywhere
		if _, err := m.Attempt(t.Context(), ann, fmt.Sprint("uid ", 7000+i), false, c.now, c.now.Add(-Lock)); err != nil {
			t.Fatal(err)
		}
	}
	if err := try(WithSource(t.Context(), "uid 8000"), "ann", word); err == nil {
		t.Errorf("more than %d guesses from everywhere", MaxGuesses)
	}
	if _, err := d.Prove(home, ann, cofferdam.Proof{Kind: Password, Password: word}, about); err != nil {
		t.Errorf("strangers together keep ann from proving: %v", err)
	}
	known, unknown := try(eve, "ann", "x"), try(eve, "nobody", "x")
	if known.Error()+cofferdam.HintOf(known) != unknown.Error()+cofferdam.HintOf(unknown) {
		t.Errorf("%v, and of nobody %v", known, unknown)
	}
	for range MaxWrong {
		_ = try(eve, "nobody", "x")
	}
	if len(m.wrong[nobody]) != MaxWrong { // counted as ann's are, and bounded
		t.Errorf("%d guesses at nobody are kept", len(m.wrong[nobody]))
	}
}

// One source has a few sign-ins under way at a provider. Those who have more than
// a newcomer make room.
func TestFlowsAreSharedOut(t *testing.T) {
	o, _, _ := bound(t)
	begin := func(source string) (string, error) {
		_, ticket, err := o.Begin(WithSource(t.Context(), source), redirect)
		return ticket, err
	}
	for i := range maxFlows {
		if _, err := begin(fmt.Sprint("uid ", i/ownFlows)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := begin("uid 0"); cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Errorf("one more than %d of one source: %v", ownFlows, err)
	}
	ann, err := begin("uid ann")
	if err != nil {
		t.Fatalf("others keep ann out: %v", err)
	}
	of := map[string]int{}
	for _, f := range o.flows {
		of[f.source]++
	}
	if len(o.flows) != maxFlows || of["uid ann"] != 1 || o.flows[hash(ann)] == nil {
		t.Errorf("%d flows, %v", len(o.flows), of)
	}
	for i := range maxFlows { // each has one: then there is no room
		_, err = begin(fmt.Sprint("uid new ", i))
		if err != nil {
			break
		}
	}
	if cofferdam.KindOf(err) != cofferdam.Exhausted || len(o.flows) != maxFlows {
		t.Errorf("%d flows, %v", len(o.flows), err)
	}
}
