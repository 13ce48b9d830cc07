package proof

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"cofferdam"
)

const snapshotTitle = "cofferdam snapshot v1"

// maxManifest bounds the manifest of a snapshot, in bytes.
const maxManifest = 8 << 10

// SignSnapshot returns the manifest of a snapshot, one line of JSON, as a signed note.
func (s Signer) SignSnapshot(manifest []byte) ([]byte, error) {
	if len(manifest) == 0 || len(manifest) > maxManifest || bytes.ContainsRune(manifest, '\n') {
		return nil, &cofferdam.Error{
			Op: "proof.SignSnapshot", Kind: cofferdam.Invalid, Subject: "sign snapshot",
			Reason: fmt.Sprintf("its manifest has %d bytes, or is not one line; %d bytes are allowed", len(manifest), maxManifest),
		}
	}
	return s.sign(snapshotTitle + "\n" + string(manifest) + "\n")
}

// OpenSnapshot checks a signed manifest against a public key and returns it. Whether
// a snapshot is the one of the manifest, sandbox.Snapshot.Fits says.
func OpenSnapshot(msg []byte, public string) ([]byte, error) {
	v, err := verifier(public)
	if err != nil {
		return nil, err
	}
	text, err := open(msg, v)
	if err != nil {
		return nil, tampered("check snapshot", err)
	}
	title, manifest, _ := strings.Cut(text, "\n")
	manifest, whole := strings.CutSuffix(manifest, "\n")
	if title != snapshotTitle || !whole || manifest == "" || strings.Contains(manifest, "\n") {
		return nil, tampered("check snapshot", errors.New("what was signed is no manifest of a snapshot"))
	}
	return []byte(manifest), nil
}
