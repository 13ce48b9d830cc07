package guest

import "testing"

// TestMarks: the group of a command says its number, whatever ids there are, and
// one of the host's says none.
func TestMarks(t *testing.T) {
	for _, number := range []uint32{1, 7, MaxCommands} {
		for _, few := range []bool{false, true} {
			group := Mark(number, few)
			if got := Marked(group); got != MarkBase+number || few && group > 65_535 {
				t.Errorf("command %d, few ids %v: group %d says %d", number, few, group, got)
			}
		}
	}
	for _, group := range []uint32{0, 5, 1000, FewBase, FewBase + MaxCommands + 1, 65_534, MarkBase, MarkBase + 1<<24 + 1, 1<<32 - 1} {
		if got := Marked(group); got != 0 {
			t.Errorf("group %d says %d", group, got)
		}
	}
}
