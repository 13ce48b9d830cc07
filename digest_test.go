package cofferdam

import (
	"crypto/sha256"
	"errors"
	"testing"
)

func TestDigestOfSum(t *testing.T) {
	d := DigestOfSum(sha256.Sum256([]byte("a")))
	const hex = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
	if d != "sha256:"+hex || d.Hex() != hex {
		t.Errorf("%s, %s", d, d.Hex())
	}
}

// Nothing that went well is taken for an error of some kind, whichever way round it
// is asked.
func TestNoErrorHasNoKind(t *testing.T) {
	if i, is := Kinds()[KindOf(nil)]; is {
		t.Errorf("no error is of the kind %s", i.Name)
	}
	if k := KindOf(errors.New("x")); k != Internal {
		t.Errorf("a plain error is %s", k)
	}
}
