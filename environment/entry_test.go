package environment

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox/snapshot"
)

// why ensures want and returns whether it was there and the reason.
func why(t *testing.T, c *Cache, w Want) string {
	t.Helper()
	f, err := c.Ensure(t.Context(), w, writing("x"))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%v: %s", f.Hit, f.Why)
}

// R14: a miss says which input changed, that the age was over, or why the image is gone.
func TestMissSaysWhy(t *testing.T) {
	c := open(t, t.TempDir())
	w := Want{Definition: Definition{Scope: cofferdam.Scope{Project: "p-1"}, Image: "host", Setup: []string{"a"}}, Name: "shop"}
	other := w
	other.Project = "p-2"
	first := w.Digest()
	for i, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, "false: the first for shop"},
		{func() {}, "true: made "},
		{func() { w.Setup, w.Allow = []string{"b"}, []string{"c"} }, "false: changed since the last: setup, allow"},
		{func() { w.ImageDigest = "sha256:1" }, "false: changed since the last: what the image holds"},
		{func() { w.Image = "web" }, "false: changed since the last: image"},
		{func() { w.Env, w.Disk = []string{"A=1"}, 3 }, "false: changed since the last: env, disk"},
		{func() { w = Want{Definition: other.Definition, Name: "shop"} }, "false: the first for shop"},
		{func() {
			w = Want{Definition: Definition{Scope: cofferdam.Scope{Project: "p-1"}, Image: "host", Setup: []string{"a"}}, Name: "shop"}
		}, "true: made "},
		{func() {
			if err := c.Remove(w.Scope, first, "ann removed it"); err != nil {
				t.Fatal(err)
			}
		}, "false: the one there was is gone: ann removed it"},
		{func() { w.MaxAge = time.Nanosecond }, "false: the one there was is older than 1ns"},
		{func() {
			if w.MaxAge = 0; os.Remove(c.path(first, ".img")) != nil {
				t.Fatal("there is none")
			}
		}, "false: the one there was is gone: its file is missing"},
	} {
		step.change()
		if got := why(t, c, w); !strings.HasPrefix(got, step.want) {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	if got := why(t, open(t, c.dir), w); !strings.HasPrefix(got, "true") {
		t.Errorf("after a restart: %s", got)
	}
}

func TestRemoveAndPrune(t *testing.T) {
	c := open(t, t.TempDir())
	scope := cofferdam.Scope{Project: "p-1"}
	now := time.Now()
	for i := range 4 {
		w := Want{Definition: Definition{Scope: scope, Setup: []string{fmt.Sprint(i)}}, Name: fmt.Sprint(i)}
		if _, err := c.Ensure(t.Context(), w, writing(strings.Repeat("x", 10<<10))); err != nil {
			t.Fatal(err)
		}
		used := now.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(c.path(w.Digest(), ".json"), used, used); err != nil {
			t.Fatal(err)
		}
	}
	all := c.List(scope)
	if len(all) != 4 || all[0].Name != "3" || all[0].Size < 8<<10 || len(c.List(cofferdam.Scope{Project: "p-2"})) != 0 {
		t.Fatalf("%+v", all)
	}
	if err := c.Remove(cofferdam.Scope{Project: "p-2"}, all[0].Digest, "x"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("another project's: %v", err)
	}
	if err := c.Remove(scope, "sha256:../../x", "x"); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("no digest: %v", err)
	}
	if got, err := c.Prune(scope, time.Hour, 2*all[0].Size, now); err != nil || len(got) != 2 || got[0].Name != "1" || got[1].Name != "0" {
		t.Errorf("by size: %+v %v", got, err)
	}
	if got, err := c.Prune(scope, time.Hour, 0, now.Add(2*time.Hour)); err != nil || len(got) != 2 || len(c.List(scope)) != 0 {
		t.Errorf("by age: %+v %v", got, err)
	}
	if e, ok := c.read(all[0].Digest); !ok || e.Gone != "it was older than 1h0m0s" {
		t.Errorf("%+v", e)
	}
}

// What a broken or foreign entry says is not believed, and what is gone is not
// remembered without end.
func TestEntriesAreBoundedAndNotBelieved(t *testing.T) {
	c := open(t, t.TempDir())
	w := Want{Definition: Definition{Setup: []string{"a"}}, Name: "n"}
	if err := os.WriteFile(c.path(w.Digest(), ".json"), []byte(`{"digest": 3`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := why(t, c, w); got != "false: the first for n" {
		t.Errorf("a broken entry: %s", got)
	}
	for i := range maxGone + 20 {
		d := Definition{Setup: []string{"a"}, Disk: int64(i)}
		if err := c.write(Entry{Digest: d.Digest(), Definition: d, Created: time.Unix(int64(i), 0), Gone: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.forget(w.Digest(), "x"); err != nil {
		t.Fatal(err)
	}
	if n := len(c.entries()); n != maxGone {
		t.Errorf("%d entries", n)
	}
}

// Boxes are made ahead of an image as its file is: being used leaves it alone.
func TestUseTouchesNoImage(t *testing.T) {
	c := open(t, t.TempDir())
	w := Want{Definition: Definition{Setup: []string{"a"}}, Name: "a"}
	first, err := c.Ensure(t.Context(), w, writing("x"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := snapshot.Touched(first.Path)
	if err != nil {
		t.Fatal(err)
	}
	made := c.used(w.Digest())
	again, err := c.Ensure(t.Context(), w, writing("y"))
	if err != nil || again.Path != first.Path {
		t.Fatalf("%+v, %v", again, err)
	}
	if after, err := snapshot.Touched(first.Path); err != nil || after != before {
		t.Errorf("a hit touched the image: %s, and then %s, %v", before, after, err)
	}
	if !c.used(w.Digest()).After(made) {
		t.Error("a hit is no use")
	}
}
