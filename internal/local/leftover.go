package local

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
)

// Records of runs that go on lie in memory, apart for each state folder. A run that
// was killed leaves one, and only a run with the same state folder would find it: a
// script that makes a new one for each run would fill the memory. So each run looks
// at a few of the others too.
const (
	stateFile = ".state" // in the folder of live records: the path of their state folder
	maxOthers = 8        // looked at by one run, which is short
	maxPath   = 4096
)

// liveIn is the folder of live records of the state folder dir.
func liveIn(runtime, dir string) string {
	sum := sha256.Sum256([]byte(dir)) // two states of one user keep apart
	return filepath.Join(runtime, "cofferdam-run", fmt.Sprintf("%x", sum[:8]))
}

// apart says whether the records of runs that go on lie outside the state folder.
func (s state) apart() bool { return s.live != s.path("live") }

// sign writes down whose records these are, for the runs of others.
func (s state) sign() error {
	path := filepath.Join(s.live, stateFile)
	if _, err := os.Lstat(path); err == nil || !s.apart() {
		return nil
	}
	half := path + "-" + cofferdam.NewID("new")
	return errors.Join(os.WriteFile(half, []byte(s.dir), 0o600), os.Rename(half, path))
}

// tidyOthers finishes killed runs of other state folders of this user. What it
// cannot do is left to another run.
func (s state) tidyOthers() {
	if !s.apart() {
		return
	}
	all := list(filepath.Dir(s.live))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, e := range all[:min(len(all), maxOthers)] {
		live := filepath.Join(filepath.Dir(s.live), e.Name())
		if info, err := e.Info(); live == s.live || err != nil || !info.IsDir() || time.Since(info.ModTime()) < settled {
			continue
		}
		other, known := readState(live)
		var st unix.Stat_t
		switch err := unix.Stat(other.dir, &st); {
		case !known:
			_ = os.Remove(live) // an empty one of an earlier release
		case errors.Is(err, fs.ErrNotExist):
			forget(live)
		case err == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0 && there(other.path("keys", "trace")):
			other.finishKilled("")
		}
	}
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// readState reads whose live records a folder has, if they can be that one's.
func readState(live string) (state, bool) {
	path := filepath.Join(live, stateFile)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxPath {
		return state{}, false
	}
	text, err := os.ReadFile(path)
	dir := string(text)
	if err != nil || !filepath.IsAbs(dir) || liveIn(filepath.Dir(filepath.Dir(live)), dir) != live {
		return state{}, false
	}
	return state{dir: dir, live: live}, true
}

// forget removes the live records of a state folder that is gone, its key with it:
// nobody could check them, or find them. A run that goes on keeps its own.
func forget(live string) {
	for _, e := range list(live) {
		dir := filepath.Join(live, e.Name())
		f, err := os.Open(filepath.Join(dir, "host.jsonl"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			f.Close() // and with it the lock: nobody opens what has no key
		}
		if info, statErr := e.Info(); statErr != nil || err != nil && !errors.Is(err, fs.ErrNotExist) || time.Since(info.ModTime()) < settled {
			continue
		}
		_ = os.RemoveAll(dir) // or another run does
	}
	if len(list(live)) == 0 {
		_ = os.Remove(filepath.Join(live, stateFile))
		_ = os.Remove(live)
	}
}
