package cofferdam

import (
	"errors"
	"fmt"
	"testing"
)

func TestHintOf(t *testing.T) {
	inner := &Error{Op: "a.B", Kind: Exhausted, Reason: "full", Hint: "free space"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"its own":         {inner, "free space"},
		"of its cause":    {&Error{Op: "c.D", Kind: Unavailable, Err: inner}, "free space"},
		"wrapped":         {fmt.Errorf("while: %w", inner), "free space"},
		"joined":          {errors.Join(errors.New("first"), inner), "free space"},
		"joined in cause": {&Error{Op: "c.D", Kind: Unavailable, Err: errors.Join(nil, inner, errors.New("last"))}, "free space"},
		"of its kind":     {&Error{Op: "c.D", Kind: Exhausted}, Kinds()[Exhausted].Hint},
		"of no kind":      {errors.New("plain"), Kinds()[Internal].Hint},
	} {
		if got := HintOf(c.err); got != c.want || got == "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestErrorIsALine: what a person reads of several errors is one line.
func TestErrorIsALine(t *testing.T) {
	two := errors.Join(errors.New("no kernel here"), errors.New("and none there"))
	for name, err := range map[string]error{
		"as its cause":  &Error{Subject: "kernel", Err: two},
		"as its reason": &Error{Subject: "kernel", Reason: "\n" + two.Error() + "\r\n"},
	} {
		if got := err.Error(); got != "kernel: no kernel here; and none there" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
