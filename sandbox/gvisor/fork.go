package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/netns"
	"cofferdam/sandbox/snapshot"
)

// fork makes the box as a copy of its snapshot that goes on under an identity
// of its own: id, hostname and machine id are new, what it draws of the kernel's
// entropy and its clock are the host's, its workspace and network are its own.
func (b *box) fork(ctx context.Context) error {
	s, release, err := b.d.openSnapshot(ctx, b.spec)
	if err != nil {
		return err
	}
	defer release()
	key, err := b.d.key(b.spec)
	if err != nil {
		return err
	}
	if key != s.Key || b.spec.SetupPhase {
		return invalid("snapshot "+string(s.ID), "it is of a box with another image, environment, files or limits, or one of them has changed",
			"ask for what the box had that it was taken of")
	}
	if err := b.prepare(ctx, s); err != nil {
		return err
	}
	host, inside, err := pipes(ctx)
	if err != nil {
		return err
	}
	b.container, err = b.start(s.Path(memoryDir), inside, host[2])
	closeAll(inside[:])
	if err != nil {
		closeAll(host[:2])
		return missing("gvisor", "the snapshot could not go on: "+err.Error(), "remove the snapshot and take a new one", err)
	}
	b.Host, err = guest.RestoreHost(host[0], host[1], b.d.journalDir(b.name), guestOptions(b), s.Guest)
	if err != nil {
		closeAll(host[:2])
		return err
	}
	// The name first: what runs in the box goes on already.
	if err := nameBox(b.d.conf, b.container, b.spec.Hostname); err != nil {
		return err
	}
	if err := b.Host.Wake(ctx, identity(b.spec)); err != nil {
		return errors.Join(err, b.console.err())
	}
	return nil
}

// alike is s without what two boxes may differ in so that one can go on as the other.
func alike(s sandbox.Spec) sandbox.Spec {
	s.ID, s.Snapshot, s.Digest, s.Hostname, s.Workspace, s.Epoch = "", "", "", "", "", 0
	return s
}

// key names all that boxes must have in common so that one can go on as another:
// everything but id and hostname, with the image and environment as they are now.
func (d *Driver) key(s sandbox.Spec) (string, error) {
	s = alike(s)
	binds, err := boundFolders(s.Image)
	if err != nil {
		return "", err
	}
	image, err := fingerprint(s.Image, binds)
	if err != nil {
		return "", err
	}
	env := ""
	if s.Env != "" {
		if env, err = snapshot.Touched(s.Env); err != nil {
			return "", err
		}
	}
	program, err := os.Stat(d.o.Init)
	if err != nil {
		return "", err
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %d %d %q %q", spec, image, env, program.Size(), program.ModTime().UnixNano(), d.checker.kernel(), netns.BoxMAC)
	return hex.EncodeToString(h.Sum(nil)), nil
}
