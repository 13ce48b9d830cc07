package sandboxtest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// posixScript does with a file system what builds and tools do: hard and symbolic
// links, locks, sockets, attributes, sparse files beyond 4 GiB, times, names.
const posixScript = `set -eux
cd /work
mkdir -p deep/er
echo one >deep/a
ln deep/a deep/er/b
ln -s ../a deep/er/c
mkdir lost+found && echo kept >lost+found/mine
mkfifo pipe
mv deep/er/c deep/er/d
echo two >>deep/er/b
grep -q two deep/a
touch -d 2001-02-03T04:05:06Z old
chmod 640 old
: >"$(printf 'odd\nname \303\251')"
printf end | dd of=big bs=1 seek=5368709120 2>/dev/null
exec 9>lock
flock -n 9
if flock -n -o lock true; then echo "two have one lock" >&2; exit 1; fi
flock -u 9
flock -n lock true
perl -e '
use strict; use Socket;
socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
bind($s, sockaddr_un("/work/socket")) or die "bind: $!";
listen($s, 1) or die "listen: $!";
socket(my $c, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
connect($c, sockaddr_un("/work/socket")) or die "connect: $!";
accept(my $a, $s) or die "accept: $!";
syswrite($c, "ping") == 4 or die "write: $!";
my $got = "";
sysread($a, $got, 4) == 4 && $got eq "ping" or die "read: $got";
'
`

// keptScript finds all that posixScript left in another box.
const keptScript = `set -eux
cd /work
test "$(cat deep/a)" = "$(printf 'one\ntwo')"
test deep/a -ef deep/er/b
test "$(stat -c %h deep/a)" = 2
test "$(readlink deep/er/d)" = ../a
test "$(cat lost+found/mine)" = kept
test -e "$(printf 'odd\nname \303\251')"
test "$(stat -c %a,%Y,%u old)" = 640,981173106,1000
test "$(stat -c %s big)" = 5368709123
test "$(tail -c 3 big)" = end
flock -n lock true
test ! -e "$HOME/mine"
test ! -e /tmp/mine
`

// Attributes that programs give to files, set and read by number of the call.
const (
	setAttribute = `my %call = (x86_64 => 188, aarch64 => 5); chomp(my $machine = qx(uname -m));
my ($path, $name, $value) = ("/work/old", "user.note", "kept");
print syscall($call{$machine}, $path, $name, $value, 4, 0) == 0 ? "set" : $!;`
	getAttribute = `my %call = (x86_64 => 191, aarch64 => 8); chomp(my $machine = qx(uname -m));
my ($path, $name, $value) = ("/work/old", "user.note", "\0" x 16);
my $n = syscall($call{$machine}, $path, $name, $value, 16);
print $n < 0 ? $! : substr($value, 0, $n);`
)

// testAttributes: the workspace has attributes that programs give to files, but
// for gVisor, which has none on a folder of the host.
func (s *subject) testAttributes(t *testing.T, b *testBox, script, want, without string) {
	t.Helper()
	if s.tier == sandbox.GVisor {
		want = without
	}
	if _, got, _ := b.do(t, sandbox.Command{Argv: []string{"perl", "-e", script}}); got != want {
		t.Errorf("attributes: %q, want %q", got, want)
	}
}

// testKeep: a workspace outlives its boxes with all that a file system can hold;
// one box at a time has it, and nobody who comes late.
func testKeep(t *testing.T, s *subject) {
	ctx := testContext(t)
	id := sandbox.WorkspaceID(cofferdam.NewID("w"))
	kept := func(epoch int64) sandbox.Spec {
		return sandbox.Spec{
			ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: s.tier, Image: "host", Workspace: id, Epoch: epoch,
			Limits: cofferdam.Limits{Disk: 64 << 20},
		}
	}
	first, err := s.Create(ctx, kept(2))
	if !s.offers(t, sandbox.CanKeep, err) {
		return
	}
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	t.Cleanup(func() { s.forget(t, id) })
	b := &testBox{first}
	if st, err := b.Status(ctx); err != nil || st.Workspace == nil || !st.Workspace.Fresh || st.Workspace.ID != id || st.Workspace.Size != 64<<20 {
		t.Errorf("the first box: %+v, %v", st.Workspace, err)
	}
	if got := b.shell(t, "ls -A /work"); got != "" {
		t.Errorf("it does not start empty: %q", got)
	}
	b.shell(t, posixScript)
	s.testAttributes(t, b, setAttribute, "set", "Operation not supported")
	b.shell(t, "touch /tmp/mine $HOME/mine")
	_, err = s.Create(ctx, kept(3))
	wantKind(t, "a workspace that a box has", err, cofferdam.Conflict)
	wantKind(t, "removing it", s.RemoveWorkspace(ctx, id), cofferdam.Conflict)
	if w := s.workspace(t, id); w.Box != first.ID() || w.Tier != s.tier {
		t.Errorf("listed as %+v", w)
	}
	if err := b.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	if w := s.workspace(t, id); w.Box != "" || w.Epoch != 2 || w.Used <= 0 || w.Used > 64<<20 || w.Left.Before(w.Made) {
		t.Errorf("left as %+v", w)
	}
	_, err = s.Create(ctx, kept(1))
	wantKind(t, "who comes late", err, cofferdam.Conflict)

	s.testKept(t, kept(3))
	for range 2 {
		if err := s.RemoveWorkspace(ctx, id); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if all, err := s.Workspaces(ctx); err != nil || slices.ContainsFunc(all, func(w sandbox.Workspace) bool { return w.ID == id }) {
		t.Errorf("it is still listed: %v", err)
	}
	bad := kept(1)
	bad.Workspace = "w-" + sandbox.WorkspaceID(strings.Repeat("../", 11))
	_, err = s.Create(ctx, bad)
	wantKind(t, "a path for an id", err, cofferdam.Invalid)
}

// testKept finds in the next box all that was left, and fills it.
func (s *subject) testKept(t *testing.T, spec sandbox.Spec) {
	t.Helper()
	ctx := testContext(t)
	second, err := s.Create(ctx, spec)
	if err != nil {
		t.Fatalf("%v (%s)", err, cofferdam.HintOf(err))
	}
	b := &testBox{second}
	if st, err := b.Status(ctx); err != nil || st.Workspace == nil || st.Workspace.Fresh || st.Workspace.Epoch != 3 {
		t.Errorf("the second box: %+v, %v", st.Workspace, err)
	}
	b.shell(t, keptScript)
	s.testAttributes(t, b, getAttribute, "kept", "No data available")
	if s.bounded() {
		r, _, _ := b.do(t, sandbox.Command{Shell: "rm -f big; dd if=/dev/zero of=/work/full bs=1M 2>&1; exit 3"})
		if !slices.Contains(r.Exhausted, sandbox.ExhaustedDisk) {
			t.Errorf("a full workspace is not named: %+v", r)
		}
		b.shell(t, "rm -f /work/full; echo more >/work/more")
	}
	if err := b.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
}

// forget removes a workspace with the test.
func (s *subject) forget(t *testing.T, id sandbox.WorkspaceID) {
	ctx := context.WithoutCancel(t.Context())
	all, _ := s.List(ctx) // without it the removal below says what is wrong
	for _, st := range all {
		if st.Workspace == nil || st.Workspace.ID != id {
			continue
		}
		if b, err := s.Open(ctx, st.ID); err == nil {
			_ = b.Destroy(ctx) // the removal below says what is wrong
		}
	}
	if err := s.RemoveWorkspace(ctx, id); err != nil {
		t.Errorf("remove: %v", err)
	}
}

// workspace finds one in the list.
func (s *subject) workspace(t *testing.T, id sandbox.WorkspaceID) sandbox.Workspace {
	t.Helper()
	all, err := s.Workspaces(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(w sandbox.Workspace) bool { return w.ID == id })
	if i < 0 {
		t.Fatalf("workspace %s is not listed: %+v", id, all)
	}
	return all[i]
}
