package gateway

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// Rules are the policy of a session as it is now. What a person opens for a
// while is in it until its time is over; every decision names the digest of
// what it was made by. Safe for concurrent use.
type Rules struct {
	now  func() time.Time
	held atomic.Pointer[policy.Set]

	mu     sync.Mutex
	purses map[string]*purse     // of openings with a bound of bytes, by id; guarded by mu
	under  map[*passing]struct{} // acts under way; guarded by mu
	timer  *time.Timer           // the next time at which one of them may be refused; guarded by mu
}

// NewRules returns Rules that begin with a set.
func NewRules(s *policy.Set) *Rules {
	r := &Rules{now: time.Now}
	r.held.Store(s)
	return r
}

// Set returns what counts now.
func (r *Rules) Set() *policy.Set {
	for {
		s := r.held.Load()
		if e := s.Expires(); e.IsZero() || r.now().Before(e) {
			return s
		}
		g := s.Grant()
		g.At = r.now()
		next, err := policy.New(g)
		if err != nil {
			return s // it compiled before: what has expired is left out, so nothing new can be wrong
		}
		if r.held.CompareAndSwap(s, next) {
			return next
		}
	}
}

// Give opens what a person's answer opens. It is an Invalid error if the rule is
// none, or its id is taken.
func (r *Rules) Give(opening policy.Opening) error {
	for {
		s := r.Set()
		g := s.Grant()
		g.Openings, g.At = append(append([]policy.Opening{}, g.Openings...), opening), r.now()
		next, err := policy.New(g)
		if err != nil {
			return err
		}
		if r.held.CompareAndSwap(s, next) {
			return nil
		}
	}
}

// Replace puts another grant in the place of what was written and given at the
// start; what people opened since stays, beside what g has of that. An error
// leaves it as it was.
func (r *Rules) Replace(g policy.Grant) error {
	stored := g.Openings
	for {
		s := r.Set()
		g.Openings, g.At = slices.Clone(s.Grant().Openings), r.now()
		for _, o := range stored {
			if _, there := s.Opening(o.ID); !there {
				g.Openings = append(g.Openings, o)
			}
		}
		next, err := policy.New(g)
		if err != nil {
			return err
		}
		if r.held.CompareAndSwap(s, next) {
			r.moved()
			return nil
		}
	}
}

// Shut lets nothing pass from now on, whatever people opened, until Replace.
func (r *Rules) Shut() error {
	s, err := policy.New(policy.Grant{})
	if err == nil {
		r.held.Store(s)
		r.moved()
	}
	return err
}

// end takes away what a person opened.
func (r *Rules) end(id string) {
	for {
		s := r.Set()
		g := s.Grant()
		g.Openings, g.At = slices.DeleteFunc(slices.Clone(g.Openings), func(o policy.Opening) bool { return o.ID == id }), r.now()
		next, err := policy.New(g)
		if err != nil || r.held.CompareAndSwap(s, next) { // less of what compiled before always compiles
			return
		}
	}
}

// Decide asks what counts now.
func (r *Rules) Decide(q policy.Query) cofferdam.Decision { return r.Set().Decide(q) }

// Digest identifies what counts now.
func (r *Rules) Digest() cofferdam.Digest { return r.Set().Digest() }

// Below is that of policy.Set, as it counts now.
func (r *Rules) Below(host cofferdam.Host) cofferdam.Host { return r.Set().Below(host) }

// Splices says whether TLS to host:port passes unseen.
func (r *Rules) Splices(host cofferdam.Host, port uint16) bool { return r.Set().Splices(host, port) }
