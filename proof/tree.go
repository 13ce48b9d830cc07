package proof

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"cofferdam"
)

// Hash is a node of the tree.
type Hash = tlog.Hash

// Tree is the growing right edge of an RFC 6962 hash tree: it can append and
// give its root, and keeps no more than 64 hashes however long the log is.
// The zero Tree is empty.
type Tree struct {
	size uint64
	edge []Hash // roots of the full subtrees, largest first
}

// Append adds one record.
func (t *Tree) Append(record []byte) {
	h := tlog.RecordHash(record)
	for n := t.size; n&1 == 1; n >>= 1 {
		last := len(t.edge) - 1
		h = tlog.NodeHash(t.edge[last], h)
		t.edge = t.edge[:last]
	}
	t.edge = append(t.edge, h)
	t.size++
}

// Size returns the number of records.
func (t *Tree) Size() uint64 { return t.size }

// Root returns the hash of the whole tree; of an empty one, SHA-256 of nothing.
func (t *Tree) Root() Hash {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	h := t.edge[len(t.edge)-1]
	for i := len(t.edge) - 2; i >= 0; i-- {
		h = tlog.NodeHash(t.edge[i], h)
	}
	return h
}

// Clone returns an independent copy.
func (t *Tree) Clone() Tree {
	return Tree{size: t.size, edge: append([]Hash(nil), t.edge...)}
}

// DigestOf returns the SHA-256 of p in the form that travels.
func DigestOf(p []byte) cofferdam.Digest { return digest(sha256.Sum256(p)) }

func digest(h Hash) cofferdam.Digest { return cofferdam.DigestOfSum(h) }

func parseDigest(d cofferdam.Digest) (h Hash, err error) {
	text, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(text) != 2*len(h) || strings.ToLower(text) != text {
		return h, fmt.Errorf("digest %.80q is not sha256 and 64 lower-case digits", d)
	}
	_, err = hex.Decode(h[:], []byte(text))
	return h, err
}
