package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"cofferdam"
	"cofferdam/environment"
)

// Few bytes of a layer make no more work, memory or disk than the bounds say.
func TestBombs(t *testing.T) {
	up := strings.Repeat("../a/", 600)
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		"folders of one name":     {[]tar.Header{file(strings.Repeat("a/", 1000)+"f", "")}, "more than 128 folders"},
		"folders behind a link":   {[]tar.Header{dir(strings.Repeat("a/", 100)), link("b", strings.Repeat("a/", 100)), file("b/"+strings.Repeat("c/", 100)+"f", "")}, "more than 128 folders"},
		"a link that goes around": {[]tar.Header{dir("a"), link("a/l", up), file("a/l/f", "")}, "or 512 with those of links"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, Options{Names: map[string]string{"x": inLayout(t, image(t, layer(t, c.entries...)))}})
			if _, err := find(t, s, "x"); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// filling is a tree in a folder, on a disk with that much free.
func filling(t *testing.T, bytes, files int64) *tree {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &tree{root: root, free: func() (int64, int64, error) { return bytes, files, nil }}
}

// unpacked puts entries into a tree, without a layer around them.
func unpacked(t *testing.T, in *tree, entries ...tar.Header) error {
	t.Helper()
	r, err := layer(t, entries...).Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return in.layer(r)
}

// Folders that no layer names count like those that one does, and names count
// with their length: they are in memory.
func TestEntriesThatNobodyNames(t *testing.T) {
	in := filling(t, math.MaxInt64, math.MaxInt64)
	if err := unpacked(t, in, file("a/b/c/d", ""), file("a/b/c/e", "")); err != nil || in.entries != 5 || in.names != 5*7 {
		t.Errorf("%d entries, %d bytes of names: %v", in.entries, in.names, err)
	}
	in.names = MaxNames - 3
	if err := unpacked(t, in, file("long", "")); err == nil || !strings.Contains(err.Error(), "of names") {
		t.Errorf("%v", err)
	}
	in.names, in.entries = 0, MaxEntries-2
	if err := unpacked(t, in, file("x/y/z", "")); err == nil || !strings.Contains(err.Error(), "entries") {
		t.Errorf("%v", err)
	}
}

// What would fill the server's disk is refused before it does.
func TestDiskOfTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		bytes, files int64
		want         bool
	}{
		"enough": {keepFree + 3, keepFiles + 1, true}, "no bytes": {keepFree + 2, math.MaxInt64, false}, "no files": {math.MaxInt64, keepFiles, false},
	} {
		if err := unpacked(t, filling(t, c.bytes, c.files), file("f", "abc")); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if bytes, files, err := space(t.TempDir()); err != nil || bytes <= 0 || files <= 0 {
		t.Errorf("%d %d %v", bytes, files, err)
	}
}

// A folder that is emptied twice in a layer is looked through once, and what the
// layer has put there is found without looking at all of it.
func TestEmptiedOnce(t *testing.T) {
	in := filling(t, math.MaxInt64, math.MaxInt64)
	if err := unpacked(t, in, file("a/old", ""), file("a/b/old", ""), file("a/c/old", "")); err != nil {
		t.Fatal(err)
	}
	if err := unpacked(t, in, file("a/b/new", ""), file("a/.wh..wh..opq", "")); err != nil {
		t.Fatal(err)
	}
	if got := listing(t, in.root.Name()); strings.Contains(got, "old") || !strings.Contains(got, "a/b/new=") {
		t.Errorf("%s", got)
	}
	var many []tar.Header
	for i := range 300 {
		many = append(many, file(fmt.Sprintf("d/%d", i), ""))
	}
	for range 20_000 { // would be six million looks
		many = append(many, file("d/.wh..wh..opq", ""))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := worked(t)
	if err := unpacked(t, in, many...); err != nil {
		t.Fatal(err)
	}
	if took := worked(t) - began; took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
}

// What a registry says of an image is bounded in memory, whatever its size and
// the name of its repository.
func TestLargeWordsOfARegistry(t *testing.T) {
	config := append([]byte(`{"os":"linux"`), bytes.Repeat([]byte(" "), maxManifest)...)
	config = append(config, '}')
	sum := sha256.Sum256(config)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	pad := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/manifests/1"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			fmt.Fprintf(w, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":%d,"digest":"%s"},"layers":[]%s}`, len(config), digest, pad)
		case strings.HasSuffix(r.URL.Path, digest):
			_, _ = w.Write(config)
		}
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	s := store(t, Options{Registries: []string{host}})
	if _, err := find(t, s, host+"/x:1"); err == nil || !strings.Contains(err.Error(), "its configuration is larger") {
		t.Errorf("a configuration: %v", err)
	}
	pad = strings.Repeat(" ", maxManifest)
	ref, err := name.ParseReference(host + "/x/blobs/y:1")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := remote.Get(ref, remote.WithTransport(s.listed())); err == nil && len(d.Manifest) > maxManifest {
		t.Errorf("a manifest of %d bytes was read", len(d.Manifest))
	}
}

// Who waits for another's image is not held up beyond its own time, and what is
// there already waits for nobody.
func TestWaitingForAnothersImage(t *testing.T) {
	s := store(t, Options{Names: map[string]string{"x": inLayout(t, image(t, layer(t, file("a", "")))), "y": inLayout(t, image(t, layer(t, file("b", ""))))}})
	if _, err := find(t, s, "x"); err != nil {
		t.Fatal(err)
	}
	s.making <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Find(ctx, scope, environment.ImageWant{Name: "x"}); err != nil {
		t.Errorf("it is there: %v", err)
	}
	cancel()
	if _, err := s.Find(ctx, scope, environment.ImageWant{Name: "y"}); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("it is not there: %v", err)
	}
	<-s.making
	if _, err := find(t, s, "y"); err != nil {
		t.Error(err)
	}
}

// A folder or file of the server is for its operator to name: what a repository
// calls an image is one in a registry, whatever it looks like.
func TestRepositoryNamesNoFolder(t *testing.T) {
	source := inLayout(t, image(t, layer(t, file("a", "secret"))))
	for _, o := range []Options{{}, {Names: map[string]string{"web": source}}} {
		s := store(t, o)
		if o.Names != nil { // so that it is there already
			if _, err := find(t, s, "web"); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{source, "tarball:" + t.TempDir(), "layout:/etc", "tarball:etc/shadow"} {
			_, err := environment.ParseRecipe([]byte(`image = "` + name + `"`))
			if got, e := find(t, s, name); e == nil || !strings.Contains(e.Error(), "no image of that name") {
				t.Errorf("%s (the definition: %v): %+v %v", name, err, got, e)
			}
		}
	}
}
