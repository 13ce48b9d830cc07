package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Bounds of an export. Source: docs/SPECIFICATION.md, "Workspaces".
const (
	exportTimeout = 20 * time.Minute
	maxExport     = 2<<30 + 1<<20 // bytes that a box may say: repo.MaxBundle and a header
	maxTips       = 10_000        // commits that a box is told the repository has
	maxSaid       = 4 << 10       // bytes of what git says when it fails
)

// exportScript runs in a box of its own, without a network, as the agent's user.
//
//go:embed export.sh
var exportScript string

const tipsFile = "/etc/cofferdam-tips"

// export writes a bundle of what is in a workspace and in no branch of its
// repository, unless one was written since its last session.
func (k *Keeper) export(ctx context.Context, r Record) (Record, error) {
	if !r.Looked.IsZero() && !r.Looked.Before(r.Left) {
		return r, nil
	}
	tips, err := k.o.Tips(ctx, r.Repo)
	if err != nil {
		return r, err
	}
	said, err := os.CreateTemp(k.o.Dir, string(r.ID)+".new-")
	if err != nil {
		return r, broken(err)
	}
	defer os.Remove(said.Name())
	defer said.Close()
	size, err := k.read(ctx, r, tips, said)
	if err != nil {
		return r, err
	}
	var bundle *cofferdam.Bundle
	if size > 0 {
		if bundle, err = k.write(ctx, r, said); err != nil {
			return r, err
		}
	}
	fields := map[string]string{"commits": "0"}
	if bundle != nil {
		fields = map[string]string{"commits": strconv.Itoa(bundle.Commits), "bundle": string(bundle.Digest), "bytes": strconv.FormatInt(bundle.Size, 10)}
	}
	if err := k.put(ctx, r, cofferdam.EventWorkspaceExport, fields); err != nil {
		return r, err
	}
	return k.add(ctx, r, bundle, r.Left)
}

// read has a box of its own say what is in the workspace, and returns how much
// it said: nothing, if all of it is in the repository.
func (k *Keeper) read(ctx context.Context, r Record, tips []cofferdam.Commit, to *os.File) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	var list strings.Builder
	for _, c := range tips[:min(len(tips), maxTips)] {
		fmt.Fprintln(&list, c)
	}
	box, err := k.o.Driver.Create(ctx, sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: r.Tier, Image: sandbox.HostImage, Hostname: short(r), Workspace: r.ID, Epoch: r.Epoch,
		Files: []sandbox.File{{Path: tipsFile, Data: []byte(list.String())}},
	})
	if err != nil {
		return 0, err
	}
	size, err := speak(ctx, box, r, to)
	clean, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	return size, errors.Join(err, box.Destroy(clean))
}

// speak runs the script and takes down what it says.
func speak(ctx context.Context, box sandbox.Box, r Record, to *os.File) (int64, error) {
	status, err := box.Status(ctx)
	if err != nil {
		return 0, err
	}
	c := sandbox.Command{
		ID: "export", Shell: exportScript, Timeout: exportTimeout,
		Env: append(left(status), "TIPS="+tipsFile, fmt.Sprintf("NOTE=What was not committed in the workspace of %s, attempt %d.", short(r), r.attempt())),
	}
	if err := box.Start(ctx, c); err != nil {
		return 0, err
	}
	var errs bytes.Buffer
	size := int64(0)
	res, err := box.Attach(ctx, c.ID, sandbox.Offsets{}, func(s sandbox.Stream, _ int64, p []byte) error {
		if s == sandbox.Stderr {
			errs.Write(p[:min(len(p), maxSaid-errs.Len())])
			return nil
		}
		if size += int64(len(p)); size > maxExport {
			return errTooLarge
		}
		_, err := to.Write(p)
		return err
	})
	if errors.Is(err, errTooLarge) {
		return 0, unreadable(r, fmt.Sprintf("what is in it and nowhere else is larger than %d MiB", maxExport>>20))
	}
	if err != nil {
		return 0, err
	}
	if res.Exit != 0 || res.Lost || res.TimedOut {
		return 0, unreadable(r, fmt.Sprintf("git ended with %d %s: %s", res.Exit, res.Reason, lastLine(errs.String())))
	}
	_, err = to.Seek(0, io.SeekStart)
	return size, err
}

// left says, for the script, how many KiB are left of a workspace that shows in the
// box with the size of the host's disk.
func left(s sandbox.Status) []string {
	if s.Workspace == nil || !slices.Contains(s.Flags, sandbox.WorkspaceWatched) {
		return nil
	}
	return []string{fmt.Sprintf("LEFT=%d", max(0, s.Workspace.Size-s.Workspace.Used)>>10)}
}

var errTooLarge = errors.New("too large")

func lastLine(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	return clip(strconv.Quote(s[strings.LastIndexByte(s, '\n')+1:]))
}

func unreadable(r Record, reason string) error {
	return &cofferdam.Error{
		Op: "workspace.export", Kind: cofferdam.Invalid, Subject: "workspace of " + short(r), Reason: reason,
		Hint: "go on in it with cofferdam task retry " + short(r) + " --resume, or give it up with cofferdam workspace remove " + short(r) + " --discard",
	}
}

// write makes the bundle that is kept: whole and on disk, or not at all.
func (k *Keeper) write(ctx context.Context, r Record, from io.Reader) (*cofferdam.Bundle, error) {
	f, err := os.CreateTemp(k.o.Dir, string(r.ID)+".new-")
	if err != nil {
		return nil, broken(err)
	}
	defer os.Remove(f.Name()) // after the rename it is not there
	defer f.Close()
	h := sha256.New()
	commits, refs, err := k.o.Bundle(ctx, r.Repo, from, io.MultiWriter(f, h))
	if bad := (*cofferdam.Error)(nil); errors.As(err, &bad) && bad.Kind == cofferdam.Invalid {
		return nil, unreadable(r, bad.Reason) // what it holds is the agent's doing, and what to do is ours to say
	}
	if err != nil || commits == 0 {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		err = f.Sync()
	}
	b := cofferdam.Bundle{Size: size, Digest: cofferdam.DigestOfSum([32]byte(h.Sum(nil))), Commits: commits, Refs: refs}
	if err == nil {
		err = os.Rename(f.Name(), k.newPath(r.ID, b.Digest))
	}
	if err == nil {
		err = syncFolder(k.o.Dir)
	}
	if err != nil {
		return nil, broken(err)
	}
	b.Made = k.o.Now().UTC()
	b.Until = b.Made.Add(k.o.Bundles)
	return &b, nil
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func broken(err error) error {
	return &cofferdam.Error{
		Op: "workspace.export", Kind: cofferdam.Unavailable, Subject: "writing a bundle", Reason: err.Error(), Hint: "see whether the disk of the state folder is full", Err: err,
	}
}
