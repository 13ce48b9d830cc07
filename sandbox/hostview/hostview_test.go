package hostview_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"cofferdam/sandbox/hostview"
)

// TestClosedEtc: what is not for everybody is hidden, whatever its name.
func TestClosedEtc(t *testing.T) {
	etc := t.TempDir()
	steps := `mkdir -p ceph open/deep shut ssl/private && echo x >ceph/key && chmod 600 ceph/key && echo x >open/deep/y && chmod 640 open/deep/y && echo x >shut/z && chmod 700 shut
		echo x >hosts && chmod 644 hosts && ln -s /data letsencrypt && chmod 700 ssl/private`
	cmd := exec.Command("sh", "-ec", "umask 022; "+steps)
	cmd.Dir = etc
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	named, err := hostview.SecretEtc(etc)
	if err != nil {
		t.Fatal(err)
	}
	got := append(named, hostview.ClosedEtc(etc, named)...)
	slices.Sort(got)
	if want := []string{"/etc/ceph/key", "/etc/letsencrypt", "/etc/open/deep/y", "/etc/shut", "/etc/ssl/private"}; !slices.Equal(got, want) {
		t.Errorf("hidden %q, want %q", got, want)
	}
}

// TestOfHome: of names with a dot only programs are shown, and credentials that
// are in what is shown are named.
func TestOfHome(t *testing.T) {
	home := t.TempDir()
	steps := `mkdir -p src dotfiles/ssh .ssh2 .aws .cargo/bin .cargo/registry .config .npm-global/etc snap && touch .netrc notes .cargo/credentials.toml
		ln -s dotfiles/ssh .ssh && ln -s src code && ln -s /etc/passwd .profile`
	cmd := exec.Command("sh", "-ec", steps)
	cmd.Dir = home
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	home, err := filepath.EvalSymlinks(home)
	if err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) (all []string) {
		for _, n := range names {
			all = append(all, filepath.Join(home, n))
		}
		return all
	}
	h := hostview.OfHome(home)
	for what, c := range map[string]struct{ got, want []string }{
		"shown":  {h.Shown, in("dotfiles", "notes", "snap", "src", ".cargo/bin", ".npm-global")},
		"linked": {h.Linked, in("dotfiles/ssh")},
		"hidden": {h.Hidden, in("snap", ".npm-global/etc")},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", what, c.got, c.want)
		}
	}
	if len(h.Links) != 1 || h.Links[filepath.Join(home, "code")] != "src" {
		t.Errorf("links: %v", h.Links)
	}
	if h := hostview.OfHome(filepath.Join(home, "gone")); len(h.Shown) != 0 {
		t.Errorf("a folder that is not there shows %q", h.Shown)
	}
}
