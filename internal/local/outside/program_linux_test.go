package outside

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"cofferdam"
)

// TestMissingProgram: a run whose gateways are not there is refused before its
// command begins, and so is one whose gateways are no program.
func TestMissingProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cofferdam-wire")
	for range 2 {
		_, err := Program(file).Open(context.Background(), Setup{}, nil)
		if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
