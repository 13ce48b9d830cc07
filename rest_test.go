package cofferdam

import "testing"

// TestRest: the ranges, what is refused, and the lowest of each.
func TestRest(t *testing.T) {
	for _, c := range []struct {
		r  Rest
		ok bool
	}{
		{Rest{}, true},
		{Rest{Idle: MinIdle}, true},
		{Rest{Idle: MaxIdle}, true},
		{Rest{Lifetime: MinIdle}, true},
		{Rest{Lifetime: MaxLifetime}, true},
		{Rest{Idle: MinIdle - 1}, false},
		{Rest{Idle: MaxIdle + 1}, false},
		{Rest{Lifetime: MinIdle - 1}, false},
		{Rest{Lifetime: MaxLifetime + 1}, false},
		{Rest{Idle: -1}, false},
		{Rest{Lifetime: -1}, false},
		{Rest{Idle: 901, Lifetime: 900}, false},
		{Rest{Idle: 900, Lifetime: 900}, true},
	} {
		if got := c.r.Check() == ""; got != c.ok {
			t.Errorf("%+v: %q", c.r, c.r.Check())
		}
	}
	server := Rest{Idle: DefaultIdle, Lifetime: DefaultLifetime}
	for _, c := range []struct{ other, want Rest }{
		{Rest{}, server},
		{Rest{Idle: 60}, Rest{60, DefaultLifetime}},
		{Rest{Idle: 7200}, server},
		{Rest{Lifetime: 3600}, Rest{DefaultIdle, 3600}},
		{Rest{Lifetime: 600}, Rest{600, 600}}, // one value, both
		{Rest{Lifetime: MaxLifetime}, server},
	} {
		if got := server.Lowest(c.other); got != c.want {
			t.Errorf("with %+v: %+v, want %+v", c.other, got, c.want)
		}
	}
}
