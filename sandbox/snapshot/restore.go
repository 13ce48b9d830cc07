package snapshot

import (
	"context"
	"fmt"

	"cofferdam/sandbox"
)

// Restore proves the snapshot that a workspace is to be put back to, and calls put
// with it. One of another workspace, of another project, or with another digest than
// was signed is refused before.
func (st *Store) Restore(ctx context.Context, r sandbox.Restore, put func(*Stored) error) error {
	const call = "RestoreWorkspace"
	subject := fmt.Sprintf("workspace %.64q", string(r.Workspace))
	switch {
	case !r.Workspace.Valid():
		return sandbox.Refuse(st.op(call), subject, `not "w-" and 32 hexadecimal digits`, "")
	case r.Digest == "":
		return sandbox.Refuse(st.op(call), subject, "without the digest that was signed", "")
	}
	s, release, err := st.Open(ctx, r.Scope, r.Snapshot, r.Digest)
	if err != nil {
		return err
	}
	defer release()
	if s.Workspace != r.Workspace {
		return sandbox.Refuse(st.op(call), subject, "snapshot "+string(r.Snapshot)+" is of another workspace", "choose one of this workspace")
	}
	if err := put(s); err != nil {
		return sandbox.Wrap(st.op(call), subject, "see whether the disk of the keeper's state folder is whole and has room", st.Explain(err))
	}
	return nil
}
