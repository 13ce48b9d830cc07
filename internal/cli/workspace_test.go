package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestStuckWorkspaceInList: one that cannot be exported has no time at which it goes,
// anywhere, and each place says what removes it.
func TestStuckWorkspaceInList(t *testing.T) {
	w := cofferdam.Workspace{ID: "w-0123456789abcdef", Number: 4, State: cofferdam.WorkspaceKept, Tier: "gvisor", Noticed: time.Now(), Until: time.Now().Add(time.Hour)}
	if row, text := workspaceRow(w), keptLabel(cofferdam.Task{}, w).value; slices.Contains(row, "stuck") || !strings.Contains(text, "will be removed at") {
		t.Errorf("control: %q, %q", row, text)
	}
	w.Stuck, w.Until, w.Note = true, time.Time{}, "it is kept, since it cannot be exported: hasDotdot"
	if row := workspaceRow(w); !slices.Contains(row, "stuck") {
		t.Errorf("%q", row)
	}
	label := keptLabel(cofferdam.Task{}, w).value
	if !strings.Contains(label, w.Note) || strings.Contains(label, "will be removed") {
		t.Errorf("%q", label)
	}
	const removes = "cofferdam workspace remove w-0123456789ab --discard"
	var view []string
	for _, l := range workspaceLabels(w) {
		view = append(view, l.value)
	}
	for _, text := range []string{label, strings.Join(view, "\n")} {
		if !strings.Contains(text, removes) || !strings.Contains(text, "cofferdam task retry t-4 --resume") {
			t.Errorf("%q lacks %s", text, removes)
		}
	}
}
