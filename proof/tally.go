package proof

import (
	"maps"
	"strconv"

	"cofferdam"
)

// maxTally bounds the number of kinds counted apart; the platform has about 20.
const maxTally = 256

// Tally counts events by kind and by verdict. The zero Tally is empty.
type Tally struct {
	Events uint64
	counts map[string]uint64 // "kind x.y", "verdict x"
}

// Add counts one event.
func (t *Tally) Add(kind string, verdict cofferdam.Verdict) {
	t.Events++
	t.add("kind " + kind)
	if verdict != "" {
		t.add("verdict " + string(verdict))
	}
}

func (t *Tally) add(key string) {
	if t.counts == nil {
		t.counts = map[string]uint64{}
	}
	if _, ok := t.counts[key]; !ok && len(t.counts) >= maxTally {
		key = "kind other"
	}
	t.counts[key]++
}

// Clone returns an independent copy.
func (t *Tally) Clone() Tally { return Tally{Events: t.Events, counts: maps.Clone(t.counts)} }

// Kinds returns how many events of each kind there were.
func (t *Tally) Kinds() map[string]uint64 { return t.under("kind ") }

// Verdicts returns how many events of each verdict there were.
func (t *Tally) Verdicts() map[string]uint64 { return t.under("verdict ") }

func (t *Tally) under(prefix string) map[string]uint64 {
	out := map[string]uint64{}
	for k, n := range t.counts {
		if len(k) > len(prefix) && k[:len(prefix)] == prefix {
			out[k[len(prefix):]] = n
		}
	}
	return out
}

// Fields returns the counts as a seal's fields.
func (t *Tally) Fields() map[string]string {
	out := map[string]string{"events": strconv.FormatUint(t.Events, 10)}
	for k, n := range t.counts {
		out[k] = strconv.FormatUint(n, 10)
	}
	return out
}

// Matches says whether a seal's fields are exactly t's counts.
func (t *Tally) Matches(fields map[string]string) bool { return maps.Equal(t.Fields(), fields) }
