package process

import (
	"context"
	"os"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// TestFileInAFolderOfTheImage: a file that is there is covered and one that is not
// is added, as a server does with the host's certificates, and only in the box;
// beside them all is as it was. Outside /etc none is added.
func TestFileInAFolderOfTheImage(t *testing.T) {
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	before, err := os.ReadFile(bundle)
	if err != nil {
		t.Skip("this host has no bundle of certificates: ", err)
	}
	d := newDriver(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: bundle, Data: []byte("ours\n")}} })
	if out, r := sh(t, b, "cat "+bundle+"; echo x >>"+bundle+" 2>/dev/null || echo shut"); out != "ours\nshut" {
		t.Errorf("%q, exit %d", out, r.Exit)
	}
	if after, err := os.ReadFile(bundle); err != nil || string(after) != string(before) {
		t.Errorf("the host's file has changed: %d bytes, %v", len(after), err)
	}
	const added = "/etc/ssl/certs/cofferdam-none.0"
	c := newBox(t, d, func(s *sandbox.Spec) {
		s.Files = []sandbox.File{{Path: bundle, Data: []byte("ours\n")}, {Path: added, Data: []byte("new\n")}}
	})
	beside, _ := sh(t, b, "ls /etc/ssl/certs; cat /etc/ssl/certs/*.pem | sha256sum")
	if out, r := sh(t, c, "cat "+added+" "+bundle+"; rm "+added+"; ls /etc/ssl/certs | grep -v cofferdam; cat /etc/ssl/certs/*.pem | sha256sum"); out != "new\nours\n"+beside {
		t.Errorf("%.300q, exit %d, want the same as %.300q", out, r.Exit, beside)
	}
	if _, err := os.Lstat(added); err == nil {
		t.Error("it is on the host")
	}
	_, err = d.Create(context.Background(), sandbox.Spec{
		ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.Process, Image: sandbox.HostImage,
		Files: []sandbox.File{{Path: "/usr/share/cofferdam-none.crt", Data: []byte("x")}},
	})
	if cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a file that is not there: %v", err)
	}
}
