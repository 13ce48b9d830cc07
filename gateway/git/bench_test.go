package git

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// plainServer is git http-backend on loopback, with nothing in between: what
// the gateway is compared with.
func plainServer(b *testing.B, upstream string) string {
	b.Helper()
	must(b, upstream, "config", "http.receivepack", "true")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httpBackend(filepath.Dir(upstream), w, r) }))
	b.Cleanup(s.Close)
	return s.URL + "/" + filepath.Base(upstream)
}

// BenchmarkPush is a push of one small commit.
func BenchmarkPush(b *testing.B) {
	run := func(b *testing.B, w *world, url string) {
		dir := filepath.Join(b.TempDir(), "work")
		w.must("/", "clone", "--quiet", url, dir)
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			write(b, dir, "n", fmt.Sprint(i))
			b.StartTimer()
			w.must(dir, "push", "--quiet", url, "HEAD:"+string(own))
		}
	}
	b.Run("gateway", func(b *testing.B) { w := newWorld(b, ""); run(b, w, w.url()) })
	b.Run("direct", func(b *testing.B) { w := newWorld(b, ""); run(b, w, plainServer(b, w.upstream)) })
}

// BenchmarkClone is a clone of 20 MB that do not compress.
func BenchmarkClone(b *testing.B) {
	run := func(b *testing.B, w *world, url string) {
		root := b.TempDir()
		b.SetBytes(20 << 20)
		for i := 0; b.Loop(); i++ {
			w.must("/", "clone", "--quiet", "--no-checkout", url, filepath.Join(root, fmt.Sprint(i)))
			b.StopTimer()
			os.RemoveAll(filepath.Join(root, fmt.Sprint(i)))
			b.StartTimer()
		}
	}
	big := func(b *testing.B) *world {
		work := b.TempDir()
		must(b, work, "init", "--quiet", "-b", "main")
		if err := copyRandom(filepath.Join(work, "big"), 20<<20); err != nil {
			b.Fatal(err)
		}
		write(b, work, "a", "x")
		bare := filepath.Join(b.TempDir(), "up.git")
		must(b, "/", "clone", "--quiet", "--bare", work, bare)
		w := newWorld(b, bare)
		if err := w.gateway.Sync(b.Context(), w.repo); err != nil {
			b.Fatal(err)
		}
		return w
	}
	b.Run("gateway", func(b *testing.B) { w := big(b); run(b, w, w.url()) })
	b.Run("direct", func(b *testing.B) { w := big(b); run(b, w, plainServer(b, w.upstream)) })
}
