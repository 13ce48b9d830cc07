package watch

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// Field returns what a file of /proc says in its line "name: …"; nil if it has none.
// The last such line counts: a process chooses the text of one before, and a kernel
// may not escape line breaks in it.
func Field(text []byte, name string) []byte {
	i := bytes.LastIndex(text, []byte("\n"+name+":"))
	switch {
	case i >= 0:
		text = text[i+1:]
	case !bytes.HasPrefix(text, []byte(name+":")):
		return nil
	}
	line, _, _ := bytes.Cut(text[len(name)+1:], []byte("\n"))
	return bytes.TrimSpace(line)
}

// Number is what a line says in digits, in whatever unit, which may follow; 0 if it
// says none.
func Number(text []byte, name string) int64 {
	digits, _, _ := bytes.Cut(Field(text, name), []byte(" "))
	n, _ := strconv.ParseInt(string(digits), 10, 64) // the kernel writes numbers
	return n
}

// Kilobytes is what a line "name: number kB" says, in bytes; 0 if there is none.
func Kilobytes(text []byte, name string) (bytes int64) { return Number(text, name) << 10 }

// Dead says whether a process has ended, by its status: one whose first thread has is
// shown as ended while others run.
func Dead(status []byte) bool {
	state := Field(status, "State")
	return len(state) > 0 && (state[0] == 'X' || state[0] == 'Z' && Number(status, "Threads") <= 1)
}

// dying says whether a process has been killed and only has to notice.
func dying(status []byte) bool {
	for _, name := range []string{"SigPnd", "ShdPnd"} {
		if set, err := strconv.ParseUint(string(Field(status, name)), 16, 64); err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}
