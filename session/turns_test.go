package session

import (
	"testing"

	"cofferdam"
)

func newTurns(most int) *turns {
	return &turns{most: most, held: map[cofferdam.SessionID]bool{}}
}

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
	s := newTurns(1)
	for range 2 {
		if p, _ := s.take("s-1", false); p != nil {
			t.Fatal("it waits for what it has")
		}
	}
	second, others := s.take("s-2", false)
	third, _ := s.take("s-3", false)
	if second == nil || third == nil || others != 1 || !s.wanted() {
		t.Fatalf("two have the only turn: %v %v beside %d", second, third, others)
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
	if p, _ := s.take("s-1", false); p == nil {
		t.Error("it came before those that wait")
	}
	s.give("s-2")
	s.give("s-3")
	s.give("s-1")
	if len(s.held) != 0 || len(s.queue) != 0 || s.wanted() {
		t.Errorf("left: %v, %d", s.held, len(s.queue))
	}
}

// TestTurnOfABoxThatRuns: it counts however many there are, and others wait until
// there are fewer again.
func TestTurnOfABoxThatRuns(t *testing.T) {
	s := newTurns(1)
	s.take("s-1", false)
	if p, _ := s.take("s-2", true); p != nil {
		t.Fatal("a box that runs waits")
	}
	p, _ := s.take("s-3", false)
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
	s := newTurns(1)
	s.take("s-1", false)
	second, _ := s.take("s-2", false)
	third, _ := s.take("s-3", false)
	s.leave(second)
	s.give("s-1")
	if second.comes() || !third.comes() {
		t.Errorf("second %v, third %v", second.comes(), third.comes())
	}
	s.leave(third)
	if len(s.held) != 0 || s.wanted() {
		t.Errorf("left: %v", s.held)
	}
}
