package repo

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
)

func bundleOf(t *testing.T, work string, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.bundle")
	git(t, work, append([]string{"bundle", "create", "--quiet", path}, args...)...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBundle: what is made of an agent's bundle can be fetched by whoever has
// the mirror's commits, and the mirror itself learns nothing of it.
func TestBundle(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	base := cofferdam.Commit(git(t, work, "rev-parse", "HEAD"))
	fill(t, r, work)
	git(t, work, "checkout", "--quiet", "-b", "agent/one")
	commit(t, work, "a.txt", "one\ntwo\n")
	tip := commit(t, work, "new.txt", strings.Repeat("text\n", 1000))
	git(t, work, "branch", "other")
	data := bundleOf(t, work, "agent/one", "other", "^main")
	var out bytes.Buffer
	b, err := Bundle(t.Context(), r, testID, bytes.NewReader(data), &out)
	if err != nil || b.Commits != 2 || len(b.Refs) != 2 {
		t.Fatalf("%+v %v", b, err)
	}
	mine := filepath.Join(t.TempDir(), "mine")
	file := filepath.Join(t.TempDir(), "out.bundle")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, "/", "clone", "--quiet", "-b", "main", work, mine)
	git(t, mine, "bundle", "verify", "--quiet", file)
	git(t, mine, "fetch", "--quiet", file, "refs/heads/agent/one:refs/heads/back")
	if got := git(t, mine, "rev-parse", "back"); got != string(tip) {
		t.Errorf("fetched %s, want %s", got, tip)
	}
	if got, err := r.Commit(t.Context(), testID, tip); err == nil {
		t.Errorf("the mirror has %s now", got)
	}
	if got, err := r.Commit(t.Context(), testID, base); err != nil || got != base {
		t.Errorf("the mirror lost %s: %v", base, err)
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, bundlePrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	// What the mirror has is nothing to bundle.
	out.Reset()
	if b, err := Bundle(t.Context(), r, testID, bytes.NewReader(bundleOf(t, work, "main")), &out); err != nil || b.Commits != 0 || out.Len() > 0 {
		t.Errorf("nothing new: %+v %v, %d bytes", b, err, out.Len())
	}
}

// TestHostileBundle gives what no agent's git would write.
func TestHostileBundle(t *testing.T) {
	r := openMirror(t)
	work := workFolder(t)
	fill(t, r, work)
	tip := commit(t, work, "a.txt", strings.Repeat("one\n", 3000))
	good := string(bundleOf(t, work, "main", "^main~1"))
	head, pack, _ := strings.Cut(good, "\n\n")
	lines := strings.Split(head, "\n")
	need := lines[1]
	ref := string(tip) + " refs/heads/main"
	many := strings.Builder{}
	for range MaxBundleRefs + 1 {
		many.WriteString(need + "\n")
	}
	for name, text := range map[string]string{
		"empty":             "",
		"no bundle":         "hello\n\n",
		"no end":            "# v2 git bundle\n" + strings.Repeat("-", 2<<20),
		"endless":           "# v2 git bundle\n" + strings.Repeat("@object-format=sha1\n", 100_000),
		"too many needs":    "# v2 git bundle\n" + many.String() + ref + "\n\n" + pack,
		"no ref":            "# v2 git bundle\n" + need + "\n\n" + pack,
		"a ref outside":     "# v2 git bundle\n" + need + "\n" + string(tip) + " refs/heads/../../config\n\n" + pack,
		"an option":         "# v2 git bundle\n" + need + "\n--all refs/heads/main\n\n" + pack,
		"a ref twice":       "# v2 git bundle\n" + need + "\n" + ref + "\n" + ref + "\n\n" + pack,
		"a filter":          "# v3 git bundle\n@filter=blob:none\n" + ref + "\n\n" + pack,
		"needs a stranger":  "# v2 git bundle\n-" + strings.Repeat("a", 40) + " x\n" + ref + "\n\n" + pack,
		"no pack":           head + "\n\n",
		"cut":               good[:len(good)-30],
		"changed":           good[:len(good)-30] + "x" + good[len(good)-29:],
		"another tip":       "# v2 git bundle\n" + need + "\n" + strings.Repeat("b", 40) + " refs/heads/main\n\n" + pack,
		"an empty pack":     head + "\n\nPACK\x00\x00\x00\x02\x00\x00\x00\x00",
		"of another format": "# v3 git bundle\n@object-format=sha256\n" + need + "\n" + ref + "\n\n" + pack,
	} {
		var out bytes.Buffer
		if _, err := Bundle(t.Context(), r, testID, strings.NewReader(text), &out); err == nil || cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("%s: %v", name, err)
		} else if len(err.Error()) > 2000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
	if left, err := filepath.Glob(filepath.Join(r.dir, bundlePrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	// The positive control: as it was made, it is taken.
	var out bytes.Buffer
	if b, err := Bundle(t.Context(), r, testID, strings.NewReader(good), &out); err != nil || b.Commits != 1 {
		t.Errorf("as it was: %+v %v", b, err)
	}
}
