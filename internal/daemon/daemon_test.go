package daemon

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"cofferdam"
)

// TestAskedToEndIsNoFault holds that only a start that failed by itself is told
// as a failure.
func TestAskedToEndIsNoFault(t *testing.T) {
	asked, ask := context.WithCancel(t.Context())
	ask()
	cut := fmt.Errorf("starting work: %w", context.Canceled)
	full := &cofferdam.Error{Kind: cofferdam.Unavailable, Subject: "disk", Reason: "full", Hint: "free some"}
	for _, c := range []struct {
		ctx  context.Context
		err  error
		exit int
		says string
	}{
		{t.Context(), nil, 0, ""},
		{asked, nil, 0, ""},
		{asked, cut, 0, "cofferdam: asked to end before it served\n"},
		{t.Context(), full, 1, "cofferdam: cannot serve: disk: full\nhint: free some\n"},
	} {
		var out strings.Builder
		if exit := tell(c.ctx, &out, c.err); exit != c.exit || out.String() != c.says {
			t.Errorf("%v: exit %d, says %q", c.err, exit, out.String())
		}
	}
}
