package watch

import "testing"

// TestFields: the last line of a name counts, for a process chooses what is in the
// first one, and nothing is made of what is not there.
func TestFields(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "A: 1 kB\nB: 2 kB\n": 2 << 10, "B: 3 kB\nA: B: 9 kB\nB: 2 kB": 2 << 10, "B:\n": 0, "B: x kB\n": 0, "BB: 7 kB\n": 0, "A: \nB: 4\n": 4 << 10} {
		if got := Kilobytes([]byte(text), "B"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"State:\tS (sleeping)\nThreads:\t1\n": false, "State:\tX (dead)\n": true, "State:\tZ (zombie)\nThreads:\t1\n": true,
		"State:\tZ (zombie)\nThreads:\t2\n": false, "Name:\ta\nState:\tZ\nState:\tS\n": false, "": false,
	} {
		if got := Dead([]byte(text)); got != want {
			t.Errorf("%q is dead: %v", text, got)
		}
	}
	for text, want := range map[string]bool{
		"SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n": true, "SigPnd:\t0000000000000100\n": true,
		"SigPnd:\t0000000000000000\nShdPnd:\t0000000000000200\n": false, "ShdPnd:\tx\n": false, "": false,
	} {
		if got := dying([]byte(text)); got != want {
			t.Errorf("%q is killed: %v", text, got)
		}
	}
}
