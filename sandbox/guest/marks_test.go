package guest

import "testing"

// TestMarks: the groups of a command say its number, whatever ids there are, and
// those of a program of the host say none.
func TestMarks(t *testing.T) {
	for _, number := range []uint32{1, 7, MarkDigits - 1, MarkDigits, 3*MarkDigits + 5, maxMark - 1} {
		for _, few := range []bool{false, true} {
			groups := Marks(number, few)
			if got := Marked(groups); got != MarkBase+number {
				t.Errorf("command %d, few ids %v: groups %d say %d", number, few, groups, got)
			}
			for _, g := range groups {
				if few && (g < FirstMark || g >= FirstMark+2*MarkDigits || g > 65_535) {
					t.Errorf("command %d has group %d", number, g)
				}
			}
		}
	}
	for _, groups := range [][]uint32{nil, {5}, {FirstMark}, {FirstMark + MarkDigits}, {FirstMark - 1, FirstMark + 2*MarkDigits}, {MarkBase}, {MarkBase + maxMark + 1}, {1<<32 - 1}} {
		if got := Marked(groups); got != 0 {
			t.Errorf("groups %d say %d", groups, got)
		}
	}
}
