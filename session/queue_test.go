package session

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"cofferdam"
)

var alone = cofferdam.Scope{Organization: "o-1", Project: "p-1"}

// comes says whether a place's turn has come.
func (p *place) comes() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// TestTurnsComeInOrder: a session has one turn however often it asks for it, gives
// it back once, and who waited longest has the next.
func TestTurnsComeInOrder(t *testing.T) {
	s := newTurns(1, 0)
	for range 2 {
		if p, _ := s.take("s-1", alone, false); p != nil {
			t.Fatal("it waits for what it has")
		}
	}
	second, why := s.take("s-2", alone, false)
	third, _ := s.take("s-3", alone, false)
	if second == nil || third == nil || !strings.Contains(why, "as many sessions run as may, 1; it is number 1") || !s.wanted("s-1") {
		t.Fatalf("two have the only turn: %v %v, %s", second, third, why)
	}
	s.give("s-4") // which had none
	if second.comes() {
		t.Error("a turn came from one that had none")
	}
	s.give("s-1")
	s.give("s-1")
	if !second.comes() || third.comes() {
		t.Errorf("second %v, third %v", second.comes(), third.comes())
	}
	if p, _ := s.take("s-1", alone, false); p == nil {
		t.Error("it came before those that wait")
	}
	s.give("s-2")
	s.give("s-3")
	s.give("s-1")
	if len(s.held) != 0 || len(s.queue) != 0 || len(s.served) != 0 {
		t.Errorf("left: %v, %d", s.held, len(s.queue))
	}
}

// TestTurnOfABoxThatRuns: it counts however many there are, and others wait until
// there are fewer again.
func TestTurnOfABoxThatRuns(t *testing.T) {
	s := newTurns(1, 0)
	s.take("s-1", alone, false)
	if p, _ := s.take("s-2", alone, true); p != nil {
		t.Fatal("a box that runs waits")
	}
	p, _ := s.take("s-3", alone, false)
	s.give("s-1")
	if p.comes() {
		t.Error("two have the only turn")
	}
	s.give("s-2")
	if !p.comes() {
		t.Error("nobody has the turn")
	}
}

// TestLeavingTheQueue: who waits no longer takes no turn, and gives back one that
// came in the same moment.
func TestLeavingTheQueue(t *testing.T) {
	s := newTurns(1, 0)
	s.take("s-1", alone, false)
	second, _ := s.take("s-2", alone, false)
	third, _ := s.take("s-3", alone, false)
	s.leave(second)
	s.give("s-1")
	if second.comes() || !third.comes() {
		t.Errorf("second %v, third %v", second.comes(), third.comes())
	}
	s.leave(third)
	if len(s.held) != 0 || len(s.queue) != 0 {
		t.Errorf("left: %v", s.held)
	}
}

// TestProjectsTakeTurns: one project's many sessions do not keep another's few
// waiting, nor one organisation's many projects another's one: organisations come one
// after the other, so do the projects of each, and of a project who came first.
func TestProjectsTakeTurns(t *testing.T) {
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	third := cofferdam.Scope{Organization: "o-2", Project: "p-1"} // ids of projects are compared with their organisation
	s := newTurns(1, 0)
	waits := map[cofferdam.SessionID]*place{}
	for _, scope := range []cofferdam.Scope{alone, alone, alone, alone, alone, other, other, third} {
		id := cofferdam.SessionID(fmt.Sprintf("s-%d", len(waits)))
		waits[id], _ = s.take(id, scope, false)
	}
	var order []cofferdam.SessionID
	for now := cofferdam.SessionID("s-0"); now != ""; {
		s.give(now)
		delete(waits, now)
		now = ""
		for id, p := range waits {
			if p.comes() {
				now = id
				order = append(order, id)
			}
		}
	}
	if want := []cofferdam.SessionID{"s-7", "s-5", "s-1", "s-6", "s-2", "s-3", "s-4"}; !slices.Equal(order, want) {
		t.Errorf("they came as %v, want %v", order, want)
	}
	if len(s.served) != 0 {
		t.Errorf("kept of projects that have nothing: %v", s.served)
	}
}

// TestTurnsOfOneProject: a project has no more than its own limit, and who waits
// for that keeps nobody of another project back, nor has a box of another rest.
func TestTurnsOfOneProject(t *testing.T) {
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	s := newTurns(3, 1)
	s.take("s-1", alone, false)
	second, why := s.take("s-2", alone, false)
	if second == nil || !strings.Contains(why, "of its project run as may, 1; it is number 1") {
		t.Fatalf("a project has more than its limit: %v, %q", second, why)
	}
	if p, _ := s.take("s-3", other, false); p != nil {
		t.Error("another project waits for it")
	}
	if s.wanted("s-3") || !s.wanted("s-1") {
		t.Error("the turn of s-1 would help, that of s-3 would not")
	}
	s.give("s-3")
	if second.comes() {
		t.Error("a turn of another project went beyond the limit")
	}
	s.give("s-1")
	if !second.comes() {
		t.Error("nobody has the turn")
	}
}

// TestPlaceInTheQueue: where one stands is told as it is now, of its own project
// alone: how many of others run or wait changes no word.
func TestPlaceInTheQueue(t *testing.T) {
	other := cofferdam.Scope{Organization: "o-2", Project: "p-9"}
	tell := func(crowd int) (told []string) {
		s := newTurns(2, 0)
		s.take("s-1", alone, false)
		s.take("o-0", other, false)
		for i := range crowd { // that run all the same, and that wait
			s.take(cofferdam.SessionID(fmt.Sprintf("r-%d", i)), other, true)
			s.take(cofferdam.SessionID(fmt.Sprintf("w-%d", i)), other, false)
		}
		s.take("s-2", alone, false)
		s.take("s-3", alone, false)
		for _, id := range []cofferdam.SessionID{"s-1", "s-2", "s-3", "s-4"} {
			why, since, waits := s.stands(id)
			if waits == since.IsZero() {
				t.Errorf("%s waits since %v: %v", id, since, waits)
			}
			told = append(told, why)
		}
		return told
	}
	few, many := tell(0), tell(7)
	if !slices.Equal(few, many) {
		t.Errorf("it tells of others: %q, %q", few, many)
	}
	if few[0] != "" || few[3] != "" || !strings.HasSuffix(few[1], "as many sessions run as may, 2; it is number 1 of its project's that wait") || !strings.HasSuffix(few[2], "number 2 of its project's that wait") {
		t.Errorf("told %q", few)
	}
	s := newTurns(1, 0)
	s.take("s-1", alone, false)
	second, _ := s.take("s-2", alone, false)
	s.take("s-3", alone, false)
	s.leave(second)
	if why, _, _ := s.stands("s-3"); !strings.Contains(why, "number 1 ") {
		t.Errorf("once the one before it is gone: %q", why)
	}
}

// TestTurnsAtOnce: three projects of two organisations take and give turns from many
// sides at once; never do more run than may, of a project no more than its limit, and
// everybody has a turn.
func TestTurnsAtOnce(t *testing.T) {
	s := newTurns(4, 2)
	scopes := []cofferdam.Scope{alone, {Organization: "o-1", Project: "p-2"}, {Organization: "o-2", Project: "p-1"}}
	var mu sync.Mutex
	running, done := map[cofferdam.Scope]int{}, 0
	var all sync.WaitGroup
	for n := range 300 {
		scope, id := scopes[n%3], cofferdam.SessionID(fmt.Sprintf("s-%d", n))
		all.Go(func() {
			p, _ := s.take(id, scope, false)
			if p != nil && n%7 == 0 { // who waits no longer
				s.leave(p)
				return
			}
			if p != nil {
				<-p.ready
			}
			mu.Lock()
			running[scope]++
			sum := 0
			for _, of := range scopes {
				sum += running[of]
			}
			if sum > 4 || running[scope] > 2 {
				t.Errorf("%d run, of one project %d", sum, running[scope])
			}
			mu.Unlock()
			s.stands(id)
			mu.Lock()
			running[scope]--
			done++
			mu.Unlock()
			s.give(id)
		})
	}
	all.Wait()
	if len(s.held) != 0 || len(s.queue) != 0 || len(s.served) != 0 || done < 300*6/7 {
		t.Errorf("left: %v, %d, %v; %d had a turn", s.held, len(s.queue), s.served, done)
	}
}
