package trace

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"cofferdam"
	"cofferdam/proof"
)

// OpenKey returns the signing key in the file path, which it makes, together
// with path+".pub", the public key, if there is none. name is what a new key is called.
func OpenKey(path, name string) (proof.Signer, error) {
	fail := &cofferdam.Error{Op: "trace.OpenKey", Kind: cofferdam.Unavailable, Subject: "open signing key " + path}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := makeKey(path, name); err != nil {
			fail.Reason, fail.Hint, fail.Err = "it cannot be made", "check space and permissions of "+filepath.Dir(path), err
			return proof.Signer{}, fail
		}
	case err != nil:
		fail.Err = err
		return proof.Signer{}, fail
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0:
		fail.Reason, fail.Hint = "it is open to other users", "chmod 600 "+path
		return proof.Signer{}, fail
	}
	text, err := readNote(path)
	if err != nil {
		fail.Err = err
		return proof.Signer{}, fail
	}
	key, err := proof.NewSigner(string(bytes.TrimSpace(text)))
	if err != nil {
		return proof.Signer{}, err
	}
	public := []byte(key.Public() + "\n")
	if have, err := os.ReadFile(path + ".pub"); err != nil || !bytes.Equal(have, public) {
		if err := writeFile(path+".pub", public); err != nil {
			fail.Err = err
			return proof.Signer{}, fail
		}
	}
	return key, nil
}

func makeKey(path, name string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	private, _ := proof.NewKey(name)
	if _, err := proof.NewSigner(private); err != nil {
		return err
	}
	return writeFile(path, []byte(private+"\n"))
}
