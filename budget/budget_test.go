package budget_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"cofferdam"
	"cofferdam/budget"
)

// TestEachLimit: what fits exactly is given, one more is not, and says what.
func TestEachLimit(t *testing.T) {
	for name, c := range map[string]struct {
		limits cofferdam.Budget
		fits   budget.Amount
		one    budget.Amount
	}{
		"tokens": {cofferdam.Budget{Tokens: 1000}, budget.Amount{Tokens: 600, Cost: 1 << 40, Calls: 9}, budget.Amount{Tokens: 1}},
		"cost":   {cofferdam.Budget{Cost: 1000}, budget.Amount{Cost: 600, Tokens: 1 << 40, Calls: 9}, budget.Amount{Cost: 1}},
		"calls":  {cofferdam.Budget{Calls: 1000}, budget.Amount{Calls: 600, Tokens: 1 << 40}, budget.Amount{Calls: 1}},
	} {
		spent := budget.Amount{Tokens: 400, Cost: 400, Calls: 400}
		m := budget.New(c.limits, spent)
		r, err := m.Reserve(c.fits)
		if err != nil || r.Held() != c.fits || m.Taken() != spent.Plus(c.fits) {
			t.Fatalf("%s: what fits: %v, taken %+v", name, err, m.Taken())
		}
		_, err = m.Reserve(c.one)
		if cofferdam.KindOf(err) != cofferdam.Exhausted || cofferdam.HintOf(err) == "" || m.Taken() != spent.Plus(c.fits) {
			t.Errorf("%s: one more: %v, taken %+v", name, err, m.Taken())
		}
		// A limit that was met stays met, though the call gives back.
		r.Settle(budget.Amount{Calls: 1})
		if _, err := m.Reserve(c.one); cofferdam.KindOf(err) != cofferdam.Exhausted {
			t.Errorf("%s: after the limit was met: %v", name, err)
		}
		if m.Taken() != spent.Plus(budget.Amount{Calls: 1}) {
			t.Errorf("%s: settled: %+v", name, m.Taken())
		}
		r.Settle(budget.Amount{Tokens: 5}) // once only
		if err := r.Hold(budget.Amount{Tokens: 1 << 50}); err != nil || m.Taken() != spent.Plus(budget.Amount{Calls: 1}) {
			t.Errorf("%s: after it was settled: %v, %+v", name, err, m.Taken())
		}
	}
}

func TestNoMeterHasNoLimit(t *testing.T) {
	var m *budget.Meter
	r, err := m.Reserve(budget.Amount{Tokens: 1 << 60})
	if err != nil || m.Taken() != (budget.Amount{}) || r.Held() != (budget.Amount{}) || m.Limits() != (cofferdam.Budget{}) {
		t.Errorf("the nil Meter: %v %+v", err, m.Taken())
	}
	r.Settle(budget.Amount{Tokens: 1})
}

// TestHoldFollows: a reservation may shrink and grow, and a settled call may be
// more than was reserved: that is what it cost.
func TestHoldFollows(t *testing.T) {
	m := budget.New(cofferdam.Budget{Tokens: 100}, budget.Amount{})
	a, _ := m.Reserve(budget.Amount{Tokens: 90})
	if err := a.Hold(budget.Amount{Tokens: 40}); err != nil {
		t.Fatal(err)
	}
	b, err := m.Reserve(budget.Amount{Tokens: 60})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Hold(budget.Amount{Tokens: 41}); err == nil || a.Held().Tokens != 40 {
		t.Errorf("growing over the limit: %v, held %+v", err, a.Held())
	}
	if err := b.Hold(budget.Amount{Tokens: 50}); err != nil {
		t.Errorf("shrinking after the limit was met: %v", err)
	}
	b.Settle(budget.Amount{Tokens: 500})
	if m.Taken().Tokens != 540 {
		t.Errorf("taken %+v", m.Taken())
	}
}

// TestNeverOverTheLimit: whatever many calls at a time reserve, grow, shrink
// and settle within what they hold, the total never passes a limit, and what
// is left at the end is the sum of what was settled.
func TestNeverOverTheLimit(t *testing.T) {
	for seed := range uint64(40) {
		limits := cofferdam.Budget{Tokens: 5000, Cost: 7000, Calls: 60}
		m := budget.New(limits, budget.Amount{Tokens: 100, Cost: 50, Calls: 1})
		var settled [3]atomic.Int64
		var calls sync.WaitGroup
		stop := make(chan struct{})
		var over atomic.Int64
		var watch sync.WaitGroup
		watch.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := m.Taken(); a.Tokens > limits.Tokens || a.Cost > limits.Cost || a.Calls > limits.Calls {
					over.Add(1)
				}
			}
		})
		for worker := range uint64(8) {
			calls.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, worker))
				for range 40 {
					a := budget.Amount{Tokens: rnd.Int64N(100), Cost: rnd.Int64N(150), Calls: 1}
					r, err := m.Reserve(a)
					if err != nil {
						continue
					}
					for range rnd.IntN(5) {
						_ = r.Hold(budget.Amount{Tokens: rnd.Int64N(200), Cost: rnd.Int64N(200), Calls: 1}) // may be refused
					}
					held := r.Held()
					spent := budget.Amount{Tokens: rnd.Int64N(held.Tokens + 1), Cost: rnd.Int64N(held.Cost + 1), Calls: 1}
					r.Settle(spent)
					settled[0].Add(spent.Tokens)
					settled[1].Add(spent.Cost)
					settled[2].Add(spent.Calls)
				}
			})
		}
		calls.Wait()
		close(stop)
		watch.Wait()
		want := budget.Amount{Tokens: 100 + settled[0].Load(), Cost: 50 + settled[1].Load(), Calls: 1 + settled[2].Load()}
		if over.Load() > 0 || m.Taken() != want {
			t.Fatalf("seed %d: over the limit %d times; taken %+v, settled %+v", seed, over.Load(), m.Taken(), want)
		}
	}
}

// TestWarnsOnce: at 80 percent of each limit, whether by what is reserved or by
// what was really spent, once, and not of what was told before.
func TestWarnsOnce(t *testing.T) {
	m := budget.New(cofferdam.Budget{Tokens: 1000, Egress: 10, Approvals: 5, Calls: 3}, budget.Amount{Approvals: 4})
	var got []string
	m.OnWarning(map[string]bool{"calls": true}, func(w budget.Warning) { got = append(got, w.Field.Key) })
	if len(got) != 1 || got[0] != "approvals" {
		t.Fatalf("of what is used already: %v", got)
	}
	r, _ := m.Reserve(budget.Amount{Tokens: 799, Egress: 7, Calls: 3})
	if len(got) != 1 {
		t.Errorf("below 80 percent: %v", got)
	}
	if err := r.Hold(budget.Amount{Tokens: 800, Egress: 7, Calls: 3}); err != nil {
		t.Fatal(err)
	}
	r.Settle(budget.Amount{Tokens: 10, Egress: 8})
	for range 3 {
		if r, err := m.Reserve(budget.Amount{Tokens: 900}); err == nil {
			r.Settle(budget.Amount{})
		}
	}
	if fmt.Sprint(got) != "[approvals tokens egress]" {
		t.Errorf("warned of %v", got)
	}
}

// TestNobodyIsWarnedOfWhatMightBeTaken: what AtMost reserves is kept from others, and
// counts for a warning only as far as it was taken.
func TestNobodyIsWarnedOfWhatMightBeTaken(t *testing.T) {
	m := budget.New(cofferdam.Budget{ToolTime: 1000}, budget.Amount{})
	var got []int64
	m.OnWarning(nil, func(w budget.Warning) { got = append(got, w.Used) })
	for _, took := range []int64{300, 490, 20} {
		r, err := m.AtMost(budget.Amount{ToolTime: 1000 - m.Taken().ToolTime})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.AtMost(budget.Amount{ToolTime: 1}); err == nil {
			t.Error("what is reserved was given to another")
		}
		r.Settle(budget.Amount{ToolTime: took})
	}
	if fmt.Sprint(got) != "[810]" {
		t.Errorf("warned at %v", got)
	}
}

// TestOtherLimitsEndNothing: a task that may send no more may still call its
// model, and one that may call no model may still send.
func TestOtherLimitsEndNothing(t *testing.T) {
	m := budget.New(cofferdam.Budget{Tokens: 10, Egress: 10}, budget.Amount{})
	if _, err := m.Reserve(budget.Amount{Egress: 11}); err == nil {
		t.Fatal("more than the limit was given")
	}
	if _, err := m.Reserve(budget.Amount{Tokens: 5}); err != nil {
		t.Errorf("a model call after that: %v", err)
	}
	if _, err := m.Reserve(budget.Amount{Egress: 10}); err != nil {
		t.Errorf("what fits after that: %v", err)
	}
	if _, err := m.Reserve(budget.Amount{Tokens: 6}); err == nil {
		t.Error("more tokens than the limit were given")
	}
	if _, err := m.Reserve(budget.Amount{Tokens: 1}); err == nil {
		t.Error("a call after the limit of models was met")
	}
}
