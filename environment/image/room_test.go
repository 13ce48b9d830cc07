package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/environment"
)

// All images together are bounded: what was unused for longest goes, of whatever
// project, nothing that a box may use does, and then no more are made.
func TestImagesAreBounded(t *testing.T) {
	names := map[string]string{}
	for i := range 4 {
		names[fmt.Sprint("i", i)] = inLayout(t, image(t, layer(t, file("f", strings.Repeat(fmt.Sprint(i), 1000)))))
	}
	dir := t.TempDir()
	s := store(t, Options{Dir: dir, Names: names, MaxBytes: 2500})
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	get := func(sc cofferdam.Scope, name string) (environment.Image, error) {
		return s.Find(t.Context(), sc, environment.ImageWant{Name: name})
	}
	unused := func(i environment.Image, days int) {
		then := time.Now().AddDate(0, 0, -days)
		if err := os.Chtimes(filepath.Dir(i.Path), then, then); err != nil {
			t.Fatal(err)
		}
	}
	there := func(i environment.Image) bool {
		_, err := os.Stat(i.Path)
		return err == nil
	}
	var all []environment.Image
	for i, sc := range []cofferdam.Scope{scope, other, scope} {
		found, err := get(sc, fmt.Sprint("i", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found)
	}
	// 3,000 bytes, and all in use: nothing goes, and no fourth is made.
	if !there(all[0]) || !there(all[1]) || !there(all[2]) {
		t.Fatal("an image in use is gone")
	}
	if _, err := get(scope, "i3"); cofferdam.KindOf(err) != cofferdam.Exhausted || !strings.Contains(cofferdam.HintOf(err), "max_images") {
		t.Errorf("%v", err)
	}
	if _, err := get(scope, "i0"); err != nil { // one that is there needs no room
		t.Error(err)
	}
	// The one unused for longest goes, whoever's it is, and no more than is needed.
	unused(all[0], 2)
	unused(all[1], 3)
	if _, err := get(scope, "i3"); err != nil {
		t.Fatal(err)
	}
	if there(all[1]) || there(all[0]) || !there(all[2]) {
		t.Errorf("there: %v %v %v", there(all[0]), there(all[1]), there(all[2]))
	}
	// What went is made anew when it is wanted, in its own project.
	unused(all[2], 2)
	if again, err := get(other, "i1"); err != nil || again.Path != all[1].Path || there(all[2]) {
		t.Errorf("%+v %v", again, err)
	}
	// A lower bound holds from the next start on.
	for _, project := range []string{"p-1", "p-2"} {
		found, _ := filepath.Glob(filepath.Join(dir, project, "*", "root"))
		for _, root := range found {
			unused(environment.Image{Path: root}, 2)
		}
	}
	store(t, Options{Dir: dir, Names: names, MaxBytes: 1})
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*", "root")); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

// No project finds another's image, though it is the same one.
func TestImagesOfProjects(t *testing.T) {
	s := store(t, Options{Names: map[string]string{"x": inLayout(t, image(t, layer(t, file("f", "text"))))}})
	mine, err := find(t, s, "x")
	if err != nil {
		t.Fatal(err)
	}
	other := cofferdam.Scope{Organization: "o-1", Project: "p-2"}
	if list, _ := s.List(other); len(list) != 0 {
		t.Errorf("another project sees %+v", list)
	}
	if err := s.Remove(other, mine.Digest, time.Now().Add(48*time.Hour)); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Errorf("another project removed it: %v", err)
	}
	theirs, err := s.Find(t.Context(), other, environment.ImageWant{Name: "x"})
	if err != nil || theirs.Path == mine.Path || theirs.Digest != mine.Digest {
		t.Errorf("%+v and %+v: %v", mine, theirs, err)
	}
	if list, _ := s.List(scope); len(list) != 1 {
		t.Errorf("the control: %+v", list)
	}
}

// An image that a box or a kept workspace has stays, however long ago it was found,
// by whatever name the store's folder is called; so do all while that is not known.
func TestImagesInUseStay(t *testing.T) {
	names := map[string]string{}
	for i := range 3 {
		names[fmt.Sprint("i", i)] = inLayout(t, image(t, layer(t, file("f", strings.Repeat(fmt.Sprint(i), 1000)))))
	}
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	var held []string
	var unknown error
	s := store(t, Options{Dir: dir, Names: names, MaxBytes: 1500, Used: func() ([]string, error) { return held, unknown }})
	var all []environment.Image
	for i := range 2 {
		found, err := find(t, s, fmt.Sprint("i", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found)
	}
	then := time.Now().AddDate(0, 0, -13)
	for _, i := range all {
		if err := os.Chtimes(filepath.Dir(i.Path), then, then); err != nil {
			t.Fatal(err)
		}
	}
	there := func(i environment.Image) bool { _, err := os.Stat(i.Path); return err == nil }
	held = []string{"host", "", "/", strings.Replace(all[0].Path, dir, other, 1)}

	unknown = errors.New("the keeper hangs")
	if err := s.Remove(scope, all[1].Digest, time.Now()); cofferdam.KindOf(err) != cofferdam.Unavailable || err == nil {
		t.Errorf("removed though nobody knows what boxes have: %v", err)
	}
	if _, err := find(t, s, "i2"); cofferdam.KindOf(err) != cofferdam.Exhausted || !there(all[0]) || !there(all[1]) {
		t.Errorf("room was made though nobody knows what boxes have: %v", err)
	}
	unknown = nil
	if err := s.Remove(scope, all[0].Digest, time.Now()); cofferdam.KindOf(err) != cofferdam.Conflict || err == nil || !there(all[0]) {
		t.Errorf("the image of a box was removed: %v", err)
	}
	if _, err := find(t, s, "i2"); err != nil {
		t.Error(err)
	}
	if !there(all[0]) || there(all[1]) {
		t.Errorf("of a box: %v; of none: %v", there(all[0]), there(all[1]))
	}
	held = nil
	if err := s.Remove(scope, all[0].Digest, time.Now()); err != nil || there(all[0]) {
		t.Errorf("when the box is gone: %v", err)
	}
}

// While it is asked what boxes have, which may take long, images are found; and one
// that is found meanwhile is not removed, for nobody had it when that was asked.
func TestImageFoundWhileBoxesAreAsked(t *testing.T) {
	var s *Store
	var asked func()
	s = store(t, Options{
		Names: map[string]string{
			"x": inLayout(t, image(t, layer(t, file("f", strings.Repeat("x", 1000))))),
			"y": inLayout(t, image(t, layer(t, file("f", strings.Repeat("y", 1000))))),
		},
		MaxBytes: 900, Used: func() ([]string, error) { asked(); return nil, nil },
	})
	asked = func() {}
	x, err := find(t, s, "x")
	if err != nil {
		t.Fatal(err)
	}
	old := func() {
		then := time.Now().AddDate(0, 0, -2)
		if err := os.Chtimes(filepath.Dir(x.Path), then, then); err != nil {
			t.Fatal(err)
		}
	}
	asked = func() {
		if again, err := find(t, s, "x"); err != nil || again.Path != x.Path {
			t.Errorf("found while boxes are asked: %+v, %v", again, err)
		}
	}
	old()
	if err := s.Remove(scope, x.Digest, time.Now()); cofferdam.KindOf(err) != cofferdam.Conflict || err == nil {
		t.Errorf("found meanwhile, and removed: %v", err)
	}
	old()
	if _, err := find(t, s, "y"); cofferdam.KindOf(err) != cofferdam.Exhausted || err == nil {
		t.Errorf("room was made of one that was found meanwhile: %v", err)
	}
	if _, err := os.Stat(x.Path); err != nil {
		t.Error(err)
	}
	asked = func() {}
	old()
	if err := s.Remove(scope, x.Digest, time.Now()); err != nil { // the control
		t.Error(err)
	}
}
