package snapshot

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestTreeHoldsNames: what is held of files with several names, while a folder is read, are
// names, and not the way there; and the same file is found under both.
func TestTreeHoldsNames(t *testing.T) {
	const files = 1000
	top := t.TempDir()
	dir := top
	for len(dir) < 3500 {
		dir = filepath.Join(dir, strings.Repeat("d", 200))
	}
	must(t, os.MkdirAll(dir, 0o700))
	for i := range files {
		name := filepath.Join(dir, fmt.Sprint(i))
		must(t, os.WriteFile(name, nil, 0o600), os.Link(name, name+"-twin"))
	}
	h := &listener{before: live()}
	must(t, hashTree(t.Context(), h, top))
	if h.twins != files || h.wrong != "" {
		t.Errorf("%d of %d twins, %q", h.twins, files, h.wrong)
	}
	if held := h.held - h.before; held > files*1024 {
		t.Errorf("%d bytes for each of %d names", held/files, files)
	}
}

// listener is a hash that hears which files are which, and looks at what is held then.
type listener struct {
	before, held int64
	last, wrong  string
	twins        int
}

func (l *listener) Write(p []byte) (int, error) {
	text := string(p)
	switch {
	case strings.HasPrefix(text, `"/`):
		l.last = text[1 : 1+strings.Index(text[1:], `"`)]
	case strings.HasPrefix(text, `is "`):
		if l.twins++; text != fmt.Sprintf("is %q\n", strings.TrimSuffix(l.last, "-twin")) {
			l.wrong = text
		}
		if l.twins%250 == 0 {
			l.held = max(l.held, live())
		}
	}
	return len(p), nil
}

func (l *listener) Sum(b []byte) []byte { return b }
func (l *listener) Reset()              {}
func (l *listener) Size() int           { return sha256.Size }
func (l *listener) BlockSize() int      { return sha256.BlockSize }

// live is how many bytes somebody still has.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one found out of use
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
