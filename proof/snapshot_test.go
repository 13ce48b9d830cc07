package proof_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/proof"
)

// TestSnapshotManifest: a manifest comes back as it was signed; one changed byte, the
// signature of another key, and what was signed as something else are refused.
func TestSnapshotManifest(t *testing.T) {
	private, public := proof.NewKey("host")
	s, err := proof.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	manifest := []byte(`{"id":"s-1","comment":"before\\nafter"}`)
	note, err := s.SignSnapshot(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := proof.OpenSnapshot(note, public); err != nil || !bytes.Equal(got, manifest) {
		t.Fatalf("got %q, %v", got, err)
	}
	_, other := proof.NewKey("host")
	head, err := s.SignHead(proof.HeadOf("s-1", &proof.Tree{}, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		note []byte
		key  string
	}{
		"changed":      {bytes.Replace(note, []byte("s-1"), []byte("s-2"), 1), public},
		"another key":  {note, other},
		"a head":       {head, public},
		"nothing":      {nil, public},
		"bare":         {manifest, public},
		"cut":          {note[:len(note)-5], public},
		"two lines":    {bytes.Replace(note, []byte("v1\n"), []byte("v1\n{}\n"), 1), public},
		"another word": {bytes.Replace(note, []byte("snapshot v1"), []byte("snapshot v2"), 1), public},
	} {
		if _, err := proof.OpenSnapshot(c.note, c.key); cofferdam.KindOf(err) != cofferdam.Tampered {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]string{"nothing": "", "two lines": "{}\n{}", "long": strings.Repeat("x", 1<<20)} {
		if _, err := s.SignSnapshot([]byte(bad)); cofferdam.KindOf(err) != cofferdam.Invalid {
			t.Errorf("signing %s: %v", name, err)
		}
	}
}
