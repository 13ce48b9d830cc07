package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"cofferdam"
	"cofferdam/environment"
)

// layer makes a layer of entries: a header's other fields have what is usual.
func layer(t *testing.T, entries ...tar.Header) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := ""
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, text, h.Linkname = tar.TypeReg, h.Linkname, ""
			h.Size = int64(len(text))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func file(name, text string) tar.Header { return tar.Header{Name: name, Linkname: text} }
func dir(name string) tar.Header        { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
}

func hard(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

func image(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// inLayout writes an image into a layout folder and returns its source.
func inLayout(t *testing.T, img v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	return "layout:" + dir
}

func store(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var scope = cofferdam.Scope{Organization: "o-1", Project: "p-1"}

func find(t *testing.T, s *Store, name string) (environment.Image, error) {
	t.Helper()
	return s.Find(t.Context(), scope, environment.ImageWant{Name: name})
}

// tree lists what an unpacked image holds: path=text, path->target, path/.
func listing(t *testing.T, root string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		switch {
		case e.IsDir():
			rel += "/"
		case e.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			rel += "->" + to
		default:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel += "=" + string(text)
		}
		all = append(all, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestLayersLieOverEachOther(t *testing.T) {
	img := image(t,
		layer(t, dir("usr"), dir("usr/bin"), link("bin", "usr/bin"), link("abs", "/usr"), file("usr/bin/sh", "old"), file("usr/gone", "x"),
			dir("etc"), file("etc/a", "a"), file("etc/b", "b"), dir("etc/sub"), file("etc/sub/c", "c"), dir("was/dir")),
		layer(t, file("bin/sh", "new"), file("abs/more", "m"), file("usr/.wh.gone", ""), file("etc/keep", "k"), file("etc/.wh..wh..opq", ""),
			file("etc/sub/d", "d"), file("was/dir", "now a file"), hard("usr/bin/bash", "bin/sh"), file("./dotted", "x"), file("/rooted", "x")),
	)
	s := store(t, Options{Names: map[string]string{"web": inLayout(t, img)}})
	got, err := find(t, s, "web")
	if err != nil {
		t.Fatal(err)
	}
	const want = "abs->/usr bin->usr/bin dotted=x etc/ etc/keep=k etc/sub/ etc/sub/d=d rooted=x usr/ usr/bin/ usr/bin/bash=new usr/bin/sh=new usr/more=m was/ was/dir=now a file"
	if have := listing(t, got.Path); have != want {
		t.Errorf("got  %s\nwant %s", have, want)
	}
	digest, err := img.Digest()
	if err != nil || string(got.Digest) != digest.String() || got.Name != "web" {
		t.Errorf("%+v, want %s %v", got, digest, err)
	}
}

// Nothing of an image leaves its folder, is a device, or keeps the rights of an owner.
func TestHostileImages(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20)
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string // in the error; "" if it is taken
	}{
		"dots":                  {[]tar.Header{file("../"+outside, "x")}, "leads out"},
		"dots inside":           {[]tar.Header{file("a/../../x", "x")}, "leads out"},
		"through a link":        {[]tar.Header{link("l", filepath.Dir(outside)), file("l/outside", "x")}, ""},
		"through dots of one":   {[]tar.Header{link("l", up+filepath.Dir(outside)[1:]), file("l/outside", "x")}, ""},
		"over a link":           {[]tar.Header{link("l", outside), file("l", "x")}, ""},
		"hard link out":         {[]tar.Header{hard("h", outside)}, "not there"},
		"hard link by dots":     {[]tar.Header{hard("h", up+outside[1:])}, "leads out"},
		"hard link to a link":   {[]tar.Header{link("l", outside), hard("h", "l")}, "no plain file"},
		"hard link by a folder": {[]tar.Header{link("l", filepath.Dir(outside)), hard("h", "l/outside")}, "not there"},
		"loop":                  {[]tar.Header{link("a", "b"), link("b", "a"), file("a/x", "x")}, "more than 40 links"},
		"device":                {[]tar.Header{{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}, "device"},
		"disk":                  {[]tar.Header{{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}}, "device"},
		"pipe":                  {[]tar.Header{{Name: "p", Typeflag: tar.TypeFifo}}, "device"},
		"whiteout by dots":      {[]tar.Header{file(".wh...", "")}, "take away"},
		"whiteout out":          {[]tar.Header{link("l", filepath.Dir(outside)), file("l/.wh.outside", "")}, ""},
		"opaque out":            {[]tar.Header{link("l", filepath.Dir(outside)), file("l/.wh..wh..opq", "")}, ""},
		"long name":             {[]tar.Header{file(strings.Repeat("a/", 2100)+"a", "x")}, "no name"},
		"long part":             {[]tar.Header{file(strings.Repeat("a", 300), "x")}, "name too long"},
		"setuid":                {[]tar.Header{{Name: "su", Typeflag: tar.TypeReg, Mode: 0o6777, Linkname: "x"}}, ""},
		"root is a link":        {[]tar.Header{link(".", "/")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, Options{Names: map[string]string{"web": inLayout(t, image(t, layer(t, c.entries...)))}})
			got, err := find(t, s, "web")
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil {
				if left, _ := filepath.Glob(filepath.Join(s.o.Dir, "*", "*")); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			} else if info, err := os.Lstat(filepath.Join(got.Path, "su")); err == nil && info.Mode() != 0o755 {
				t.Errorf("setuid: %v", info.Mode())
			}
			if text, err := os.ReadFile(outside); err != nil || string(text) != "canary" {
				t.Fatalf("outside is %q %v", text, err)
			}
			if info, err := os.Stat(outside); err != nil || info.Sys() == nil || !info.Mode().IsRegular() {
				t.Fatalf("outside: %v", err)
			}
		})
	}
}

// CMP-17: an image whose /dev/null or /dev/console is a link to a setting of the
// kernel has no /dev when it is unpacked; neither by a link in the place of /dev.
func TestImageHasNoDevicesCMP17(t *testing.T) {
	for _, entries := range [][]tar.Header{
		{dir("dev"), link("dev/null", "/proc/sys/kernel/core_pattern"), link("dev/console", "/proc/sys/kernel/core_pattern"), file("usr", "x")},
		{link("dev", "usr"), link("dev/null", "/proc/sys/kernel/core_pattern"), file("usr", "x")},
		{link("here", "dev"), link("here/null", "/proc/sys/kernel/core_pattern"), file("usr", "x")},
		{{Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, link("proc/self", "/"), file("usr", "x")},
	} {
		s := store(t, Options{Names: map[string]string{"web": inLayout(t, image(t, layer(t, entries...)))}})
		got, err := find(t, s, "web")
		if err != nil {
			t.Fatal(err)
		}
		if have := strings.TrimPrefix(listing(t, got.Path), "here->dev "); have != "usr=x" {
			t.Errorf("%s", have)
		}
	}
}

// A layer that unpacks to more than is taken, and one that is not what the
// manifest pins, leave nothing.
func TestBombAndOtherBytes(t *testing.T) {
	b := &bound{ctx: t.Context(), r: zeros{}, left: 1 << 20}
	if n, err := io.Copy(io.Discard, b); err == nil || n != 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	tr := filling(t, math.MaxInt64, math.MaxInt64)
	tr.entries = MaxEntries
	r, err := layer(t, file("a", "x")).Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.layer(r); err == nil || !strings.Contains(err.Error(), "entries") {
		t.Errorf("%v", err)
	}
	source := inLayout(t, image(t, layer(t, file("a", "one"))))
	blobs, err := filepath.Glob(filepath.Join(strings.TrimPrefix(source, "layout:"), "blobs", "sha256", "*"))
	if err != nil || len(blobs) != 3 {
		t.Fatalf("%v %v", blobs, err)
	}
	other, err := layer(t, file("a", "two")).Compressed()
	if err != nil {
		t.Fatal(err)
	}
	evil, err := io.ReadAll(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range blobs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text[0] != '{' { // the layer
			if err := os.WriteFile(path, evil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := store(t, Options{Names: map[string]string{"web": source}})
	if _, err := find(t, s, "web"); err == nil || !strings.Contains(err.Error(), "layer 1") {
		t.Errorf("another layer: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.o.Dir, "p-1", "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A tag is looked up once; a registry that the operator does not list is not
// asked, nor is another host that one names.
func TestRegistry(t *testing.T) {
	srv := httptest.NewServer(registry.New(registry.Logger(discard())))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	push := func(text string) v1.Hash {
		t.Helper()
		ref, err := name.ParseReference(host + "/web:1")
		if err != nil {
			t.Fatal(err)
		}
		img := image(t, layer(t, file("a", text)))
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := push("one")
	s := store(t, Options{Registries: []string{host}})
	got, err := find(t, s, host+"/web:1")
	if err != nil || string(got.Digest) != first.String() || listing(t, got.Path) != "a=one" {
		t.Fatalf("%+v %v", got, err)
	}
	second := push("two")
	if got, err := find(t, s, host+"/web:1"); err != nil || string(got.Digest) != first.String() {
		t.Errorf("the tag moved: %+v %v", got, err)
	}
	if got, err := find(t, s, host+"/web@"+second.String()); err != nil || listing(t, got.Path) != "a=two" {
		t.Errorf("by digest: %+v %v", got, err)
	}
	// Another project has its own, and the tag anew.
	if got, err := s.Find(t.Context(), cofferdam.Scope{Project: "p-2"}, environment.ImageWant{Name: host + "/web:1"}); err != nil || string(got.Digest) != second.String() {
		t.Errorf("another project: %+v %v", got, err)
	}
	if err := s.Remove(scope, got.Digest, time.Now()); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("removed while a box may use it: %v", err)
	}
	if err := s.Remove(scope, got.Digest, time.Now().Add(2*InUse)); err != nil {
		t.Fatal(err)
	}
	if got, err := find(t, s, host+"/web:1"); err != nil || string(got.Digest) != second.String() {
		t.Errorf("after it was removed: %+v %v", got, err)
	}
	for _, bad := range []string{"web", "web:1", host + "/web", "other.test/web:1", host + "/none:1", host + "/../x:1", "layout:/x", "tarball:/x", "/etc", host + "/web@sha256:" + strings.Repeat("0", 64)} {
		if _, err := find(t, s, bad); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
			t.Errorf("%s: %v", bad, err)
		}
	}
	other := store(t, Options{Registries: []string{"registry.test"}})
	if _, err := find(t, other, host+"/web:1"); err == nil {
		t.Error("a registry that is not listed was asked")
	}
}

func TestTarballAndOtherMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.tar")
	img := image(t, layer(t, file("a", "tar")))
	if err := tarball.WriteToFile(path, name.MustParseReference("x.test/web:1"), img); err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = "s390x", "linux"
	foreign, err := mutate.ConfigFile(img, config)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	s := store(t, Options{Names: map[string]string{"t": "tarball:" + path, "f": inLayout(t, foreign), "d": folder, "none": "layout:/nonexistent", "no": "tarball:/dev/null"}})
	if got, err := find(t, s, "t"); err != nil || listing(t, got.Path) != "a=tar" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := find(t, s, "d"); err != nil || got.Path != folder || got.Name != "d" {
		t.Errorf("a folder: %+v %v", got, err)
	}
	for name, want := range map[string]string{"f": "s390x", "none": "no layout", "no": "cannot be read"} {
		if _, err := find(t, s, name); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all, used := s.List(scope)
	if len(all) != 1 || all[0].Name != "t" || all[0].Size != 3 || used[all[0].Digest].IsZero() {
		t.Errorf("%+v", all)
	}
	if got, err := find(t, store(t, Options{Dir: s.o.Dir, Names: s.o.Names}), "t"); err != nil || listing(t, got.Path) != "a=tar" {
		t.Errorf("after a restart: %+v %v", got, err)
	}
}

// Packages come from the machine's own sources. The real program is run by the
// soak; here is what it is asked for.
func TestDebianPackages(t *testing.T) {
	program := filepath.Join(t.TempDir(), "mmdebstrap")
	script := "#!/bin/sh\nfor a; do case $a in --include=*) i=$a;; /*root) r=$a;; esac; done\n[ \"$i\" != --include=broken1,ca-certificates,git ] || { echo 'E: no broken1' >&2; exit 1; }\necho \"$i\" > $r/asked\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	want := environment.ImageWant{Name: "debian", Packages: []string{"ripgrep", "curl"}}
	if _, err := store(t, Options{}).Find(t.Context(), scope, want); cofferdam.KindOf(err) != cofferdam.Invalid || !strings.Contains(err.Error(), "installs no packages") {
		t.Errorf("without leave: %v", err)
	}
	if _, _, suite := aptSources(); suite == "" {
		t.Skip("not run here: this machine is no Debian")
	}
	s := store(t, Options{Packages: true, Program: program})
	got, err := s.Find(t.Context(), scope, want)
	if err != nil || listing(t, got.Path) != "asked=--include=ca-certificates,curl,git,ripgrep\n" {
		t.Fatalf("%+v %v", got, err)
	}
	again, err := s.Find(t.Context(), scope, environment.ImageWant{Name: "debian", Packages: []string{"curl", "ripgrep"}})
	if err != nil || again.Digest != got.Digest {
		t.Errorf("%+v %v", again, err)
	}
	_, err = s.Find(t.Context(), scope, environment.ImageWant{Name: "debian", Packages: []string{"broken1"}})
	if err == nil || !strings.Contains(err.Error(), "E: no broken1") {
		t.Errorf("%v", err)
	}
}

// TestDebianForReal takes minutes and the network of the machine.
func TestDebianForReal(t *testing.T) {
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("takes long: make soak runs it, or COFFERDAM_SOAK=1")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil || os.Getuid() != 0 {
		t.Skip("not run here: needs root and mmdebstrap")
	}
	ctx, cancel := context.WithTimeout(t.Context(), debianTime)
	defer cancel()
	got, err := store(t, Options{Packages: true}).Find(ctx, scope, environment.ImageWant{Name: "debian", Packages: []string{"ripgrep"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/bin/rg", "usr/bin/git", "bin/sh"} {
		if _, err := os.Lstat(filepath.Join(got.Path, name)); err != nil {
			t.Error(err)
		}
	}
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }
