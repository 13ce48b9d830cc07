package scripttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckpointsDocument: every command of docs/checkpoints.md is run by the script
// about them, in a session that it needs beside it.
func TestCheckpointsDocument(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(Root, "testdata", "product", "checkpoint.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	commands, _, _ := strings.Cut(string(script), "\n-- ")
	for _, line := range blocks(t, "docs/checkpoints.md", 9) {
		if !strings.Contains(commands, line) {
			t.Errorf("no script runs: %s", line)
		}
	}
}
