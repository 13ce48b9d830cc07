package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam/sandbox/cgroup"
)

// TestEnterAsked: this program enters a box's groups under two names alone, and with the
// folder of the box.
func TestEnterAsked(t *testing.T) {
	dir := t.TempDir()
	if err := (cgroup.Start{Program: dir + "/nothing"}).Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		asked bool
		want  string // of the error
	}{
		{[]string{"init"}, false, ""},
		{[]string{"/.cofferdam/init", "boot", "--bundle=" + dir, "b-1"}, false, ""},
		{[]string{sentryName}, false, ""},
		{[]string{sentryName, "boot", "b-1"}, true, "--bundle"},
		{[]string{goferName, "gofer", "--bundle"}, true, "--bundle"},
		{[]string{goferName, "gofer", "--bundle="}, true, "--bundle"},
		{[]string{sentryName, "boot", "--bundle=" + dir + "/none", "b-1"}, true, "how to start"},
		{[]string{sentryName, "boot", "--bundle=" + dir, "b-1"}, true, "start " + dir + "/nothing"},
		{[]string{goferName, "--x", "gofer", "--bundle", dir, "--y"}, true, "start " + dir + "/nothing"},
	} {
		asked, err := enter(c.args)
		if asked != c.asked || (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v, want %v, %q", c.args, asked, err, c.asked, c.want)
		}
	}
	if why := cgroup.Failed(dir); why == nil || !strings.Contains(why.Error(), "nothing") {
		t.Errorf("the folder says %v", why)
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder was made")
	}
}
