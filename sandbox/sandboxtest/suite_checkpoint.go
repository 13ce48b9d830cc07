package sandboxtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/proof"
	"cofferdam/sandbox"
)

// kept is a subject's boxes that have one workspace after the other.
type kept struct {
	*subject
	workspace sandbox.WorkspaceID
	scope     cofferdam.Scope
	epoch     int64
	signer    proof.Signer
}

// box makes the next box that has the workspace. The caller destroys it.
func (k *kept) box(t *testing.T) (*testBox, error) {
	t.Helper()
	k.epoch++
	b, err := k.Create(testContext(t), sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: k.tier, Image: "host", Scope: k.scope, Workspace: k.workspace, Epoch: k.epoch,
		Limits: cofferdam.Limits{Disk: 64 << 20},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = b.Destroy(context.WithoutCancel(t.Context())) }) // twice is no error; the removal of the workspace says what is wrong
	return &testBox{b}, nil
}

// take takes a checkpoint of b as a server does: with all that is said of it, and
// signed.
func (k *kept) take(t *testing.T, b *testBox, l sandbox.Label) sandbox.Snapshot {
	t.Helper()
	ctx := testContext(t)
	s, err := b.Snapshot(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s")), Label: l})
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	t.Cleanup(func() { _ = k.RemoveSnapshot(context.WithoutCancel(t.Context()), s.ID) }) // for the driver's bounds; its folder goes with the test
	manifest, err := s.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	note, err := k.signer.SignSnapshot(manifest)
	if err == nil {
		err = k.SignSnapshot(ctx, s.ID, note)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// listed finds a checkpoint in the list, as it was signed.
func (k *kept) listed(t *testing.T, id sandbox.SnapshotID) sandbox.Snapshot {
	t.Helper()
	all, err := k.Snapshots(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s sandbox.Snapshot) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("%s is not listed: %+v", id, all)
	}
	manifest, err := proof.OpenSnapshot(all[i].Note, k.signer.Public())
	if err == nil {
		err = all[i].Fits(manifest)
	}
	if err != nil {
		t.Errorf("the manifest of %s: %v", id, err)
	}
	return all[i]
}

// restore puts the workspace back to s.
func (k *kept) restore(t *testing.T, s sandbox.Snapshot) error {
	t.Helper()
	return k.RestoreWorkspace(testContext(t), sandbox.Restore{Scope: k.scope, Workspace: k.workspace, Epoch: k.epoch, Snapshot: s.ID, Digest: s.Digest})
}

// testCheckpoints: a workspace is taken while its box works, compared, and put back,
// and put forth again; what is not what was signed, and not its own, is refused.
func testCheckpoints(t *testing.T, s *subject) {
	ctx := testContext(t)
	private, _ := proof.NewKey("suite")
	signer, err := proof.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{
		subject: s, signer: signer, workspace: sandbox.WorkspaceID(cofferdam.NewID("w")),
		scope: cofferdam.Scope{Organization: "o-1", Project: "p-1"},
	}
	b, err := k.box(t)
	if !s.offers(t, sandbox.CanCheckpoint, s.lackOfCheckpoints(t)) {
		return
	}
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	t.Cleanup(func() { s.forget(t, k.workspace) })
	b.shell(t, `echo one >f; echo gone >gone; ln -s f link; mkdir d; echo x >d/x; printf . | dd of=sparse bs=1 seek=20000000 2>/dev/null; echo run >/tmp/run`)
	b.start(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
	b.waitFor(t, "count", "1\n")
	first := k.take(t, b, sandbox.Label{Session: "s-suite", Order: 0, Comment: "first: <é>", Environment: "sha256:0", Actor: "somebody"})
	if first.Box != b.ID() || first.Workspace != k.workspace || first.Memory || first.Digest == "" || first.Size <= 0 || first.Comment != "first: <é>" || first.Name() != "v0" {
		t.Errorf("%+v", first)
	}
	k.listed(t, first.ID)
	b.shell(t, `echo two >f; rm gone; ln -sf d link; chmod 700 d; printf 'new\n' >"$(printf 'odd\377\n\033[2Jname')"; printf , | dd of=sparse bs=1 seek=20000000 conv=notrunc 2>/dev/null`)
	k.wantDifferences(t, sandbox.Compare{Scope: k.scope, From: first.ID, Box: b.ID()})
	second := k.take(t, b, sandbox.Label{Session: "s-suite", Order: 1, Automatic: true, Comment: "before restoring v0", Parent: first.ID})
	k.wantDifferences(t, sandbox.Compare{Scope: k.scope, From: first.ID, To: second.ID})
	k.refuses(t, first, second, b)
	k.suspended(t, second, b)
	if err := b.Write(ctx, "count", []byte("3\n"), true); err != nil {
		t.Fatal(err)
	}
	r, out, _ := b.do(t, sandbox.Command{ID: "count", Argv: []string{"bash", "-c", countAloud}, Stdin: true})
	if r.Exit != 3 || r.Lost {
		t.Errorf("the command that ran meanwhile: %+v", r)
	}
	wantCount(t, out)
	if err := b.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	k.goesBack(t, first, second)
}

// lackOfCheckpoints is what a driver says that has none.
func (s *subject) lackOfCheckpoints(t *testing.T) error {
	t.Helper()
	_, err := s.box(t, nil).Snapshot(testContext(t), sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s"))})
	return err
}

// wantDifferences compares what testCheckpoints made of the workspace.
func (k *kept) wantDifferences(t *testing.T, c sandbox.Compare) {
	t.Helper()
	d, err := k.Differences(testContext(t), c)
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	tell := func(f *sandbox.Found) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%s,%d,%o", f.Kind, f.Size, f.Mode)
	}
	var got []string
	for _, x := range d.List {
		got = append(got, fmt.Sprintf("%q %s %s", x.Path, tell(x.Was), tell(x.Is)))
	}
	want := []string{
		`"d" folder,0,755 folder,0,700`, `"f" file,4,644 file,4,644`, `"gone" file,5,644 -`, `"link" link,1,777 link,1,777`,
		`"odd\xff\n\x1b[2Jname" - file,4,644`, `"sparse" file,20000001,644 file,20000001,644`,
	}
	if !slices.Equal(got, want) || d.Added != 1 || d.Removed != 1 || d.Changed != 4 {
		t.Errorf("got\n%s\n%+v\nwant\n%s", strings.Join(got, "\n"), d, strings.Join(want, "\n"))
	}
}

// refuses tries what is not to be had while a box has the workspace.
func (k *kept) refuses(t *testing.T, first, second sandbox.Snapshot, b *testBox) {
	t.Helper()
	ctx := testContext(t)
	wantKind(t, "putting back what a box has", k.restore(t, first), cofferdam.Conflict)
	_, err := b.Snapshot(ctx, sandbox.Take{ID: first.ID})
	wantKind(t, "the same id", err, cofferdam.Conflict)
	_, err = b.Snapshot(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s")), Label: sandbox.Label{Session: "s-suite", Order: 1}})
	wantKind(t, "the same number", err, cofferdam.Conflict)
	_, err = b.Snapshot(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s")), Label: sandbox.Label{Comment: "two\nlines"}})
	wantKind(t, "a comment of two lines", err, cofferdam.Invalid)
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	for name, c := range map[string]struct {
		sandbox.Compare
		want cofferdam.Kind
	}{
		"another project's snapshot": {sandbox.Compare{Scope: other, From: first.ID, To: second.ID}, cofferdam.NotFound},
		"one that there is not":      {sandbox.Compare{Scope: k.scope, From: first.ID, To: sandbox.SnapshotID(cofferdam.NewID("s"))}, cofferdam.NotFound},
		"a box that there is not":    {sandbox.Compare{Scope: k.scope, From: first.ID, Box: cofferdam.BoxID(cofferdam.NewID("b"))}, cofferdam.NotFound},
		"with nothing":               {sandbox.Compare{Scope: k.scope, From: first.ID}, cofferdam.Invalid},
	} {
		_, err := k.Differences(ctx, c.Compare)
		wantKind(t, "differences with "+name, err, c.want)
	}
	_, err = k.Create(ctx, sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: k.tier, Image: "host", Scope: k.scope, Snapshot: first.ID, Limits: cofferdam.Limits{Disk: 64 << 20},
	})
	wantKind(t, "a box that goes on from a workspace", err, cofferdam.Invalid)
}

// suspended takes a checkpoint of a box that is at rest: a person looks at it then.
func (k *kept) suspended(t *testing.T, last sandbox.Snapshot, b *testBox) {
	t.Helper()
	ctx := testContext(t)
	b.shell(t, "echo kept >/work/rest")
	err := b.Suspend(ctx)
	if !k.offers(t, sandbox.CanSuspend, err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	third := k.take(t, b, sandbox.Label{Session: "s-suite", Order: 2})
	_, err = b.Snapshot(ctx, sandbox.Take{ID: sandbox.SnapshotID(cofferdam.NewID("s")), Memory: true})
	wantKind(t, "all of a box at rest", err, cofferdam.Conflict)
	for _, c := range []sandbox.Compare{{From: last.ID, To: third.ID}, {From: last.ID, Box: b.ID()}} {
		c.Scope = k.scope
		if d, err := k.Differences(ctx, c); err != nil || d.Added != 1 || d.Changed+d.Removed != 0 || string(d.List[0].Path) != "rest" {
			t.Errorf("at rest: %+v, %v", d, err)
		}
	}
	if err := b.Resume(ctx); err != nil {
		t.Fatal(err)
	}
}

// goesBack puts the workspace back to the first, and forth to the second.
func (k *kept) goesBack(t *testing.T, first, second sandbox.Snapshot) {
	t.Helper()
	ctx := testContext(t)
	good := sandbox.Restore{Scope: k.scope, Workspace: k.workspace, Epoch: k.epoch, Snapshot: first.ID, Digest: first.Digest}
	for name, c := range map[string]struct {
		change func(*sandbox.Restore)
		want   cofferdam.Kind
	}{
		"another digest":    {func(r *sandbox.Restore) { r.Digest = second.Digest }, cofferdam.Tampered},
		"no digest":         {func(r *sandbox.Restore) { r.Digest = "" }, cofferdam.Invalid},
		"another project":   {func(r *sandbox.Restore) { r.Scope.Project = "p-2" }, cofferdam.NotFound},
		"another workspace": {func(r *sandbox.Restore) { r.Workspace = sandbox.WorkspaceID(cofferdam.NewID("w")) }, cofferdam.Invalid},
		"who comes late":    {func(r *sandbox.Restore) { r.Epoch = 0 }, cofferdam.Conflict},
	} {
		r := good
		c.change(&r)
		wantKind(t, name, k.RestoreWorkspace(ctx, r), c.want)
	}
	for _, x := range []struct {
		to   sandbox.Snapshot
		want string
	}{{first, "one d f gone link sparse .f"}, {second, "two d f link odd? ?[2Jname sparse ,d"}} {
		if err := k.restore(t, x.to); err != nil {
			t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
		}
		b, err := k.box(t)
		if err != nil {
			t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
		}
		got := b.shell(t, `printf '%s ' $(cat f) "$(ls | tr '\n\377\033' ' ??')"; tail -c 1 sparse; readlink link; test ! -e /tmp/run`)
		if strings.Join(strings.Fields(got), " ") != x.want {
			t.Errorf("put back to %s it has %q, not %q", x.to.Name(), got, x.want)
		}
		if err := b.Destroy(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
