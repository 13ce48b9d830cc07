package session_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/sandbox"
	"cofferdam/session"
)

// folders is a driver whose environments are folders, as an ordinary user's are.
type folders struct{ sandbox.Driver }

func (folders) Offers(context.Context) ([]sandbox.Offer, error) {
	return []sandbox.Offer{{Tier: sandbox.None, EnvFolder: true}}, nil
}

// Where a driver has folders, what a setup leaves is kept as one, and bounded by
// the task's limit of disk; and it is another environment than an image.
func TestSetupLeavesAFolder(t *testing.T) {
	b := newBench(t, func(o *session.Options) { o.Driver = folders{o.Driver} })
	recipe := func(setup string) map[string]string {
		return map[string]string{environment.RecipePath: "setup = [" + setup + "]\n"}
	}
	p := b.at("cat /env/greeting > said", recipe(`"echo hello > greeting"`))
	for _, found := range []string{"miss: the first for shop/command", "hit: made "} {
		p.ID = cofferdam.SessionID(cofferdam.NewID("s"))
		if r := b.run(p); r.Failure != "" || !strings.HasPrefix(r.Box.Found, found) {
			t.Fatalf("%+v", r)
		}
	}
	kept, err := filepath.Glob(filepath.Join(b.dir, "env", "*.img", "files", "greeting"))
	if text, rerr := os.ReadFile(strings.Join(kept, "")); err != nil || rerr != nil || string(text) != "hello\n" {
		t.Errorf("kept: %q %q, %v %v", kept, text, err, rerr)
	}
	p = b.at("true", recipe(`"head -c 20M /dev/zero > big"`))
	p.Request.Limits = &cofferdam.Limits{Disk: 16 << 20}
	if r := b.run(p); r.Failure != "environment" || !strings.Contains(r.Reason, "it left 20 MiB in 1 files, and 16 MiB") {
		t.Errorf("more than the limit of disk: %+v", r)
	}
	left, err := filepath.Glob(filepath.Join(b.dir, "env", "*"))
	if err != nil || len(left) != 2 { // the first, and what is known of it
		t.Errorf("left: %q, %v", left, err)
	}
}
