package workspace

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A clock can be set ahead by a month, and everything would be due at once. So what
// lies between a notice and a removal is measured by how long servers have run:
// that only grows, and by no more than the time that really went by.

// runningFile keeps how long the servers of this installation have run in all.
const runningFile = "running"

// running is how long they have, this one included.
func (k *Keeper) running() time.Duration { return k.before + k.o.Up() }

// readRunning reads what the servers before this one left. Of a file that is not
// there, or cannot be read, nothing counts: then it takes longer.
func readRunning(dir string) time.Duration {
	text, err := os.ReadFile(filepath.Join(dir, runningFile))
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return max(d, 0)
}

// keepRunning writes down how long they have run.
func (k *Keeper) keepRunning() error {
	path := filepath.Join(k.o.Dir, runningFile)
	half := path + ".new"
	return errors.Join(os.WriteFile(half, []byte(k.running().String()+"\n"), 0o600), os.Rename(half, path))
}

// rest is how long servers have to run yet until a day has gone by since a notice
// that was given when they had run for told.
func (k *Keeper) rest(told time.Duration) time.Duration {
	ran := k.running() - told
	if ran < 0 { // what they had run was lost: it begins anew with the next sweep
		return Notice
	}
	return max(Notice-ran, 0)
}

// tick keeps how long servers have run. Without it a removal only takes longer.
func (k *Keeper) tick() {
	if err := k.keepRunning(); err != nil {
		k.o.Log.Warn("keeping how long servers have run", slog.Any("error", err))
	}
}
