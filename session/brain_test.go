package session

import (
	"errors"
	"testing"

	"cofferdam"
)

// TestAtEnd: whoever wants the workspace put back is refused once a brain thinks no
// more, however it ended; what another process goes on with can still be put back.
func TestAtEnd(t *testing.T) {
	for _, err := range []error{nil, errTimeUp, errLifetime, &cofferdam.Error{Kind: cofferdam.Exhausted}, &cofferdam.Error{Kind: cofferdam.Invalid}} {
		if !atEnd(err) {
			t.Errorf("%v is no end", err)
		}
	}
	for _, err := range []error{errRestore, errors.New("the disk"), &cofferdam.Error{Kind: cofferdam.Unavailable}} {
		if atEnd(err) {
			t.Errorf("%v is an end", err)
		}
	}
}
