package scripttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunDocument follows docs/run.md: every line of every sh block is run, in
// order, in a project's folder, with example.com on loopback and without a server.
func TestRunDocument(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the document's example.com is served on port 443")
	}
	t.Parallel()
	r := newReader(t, played, "127.77.0.5:443", "example.com")
	r.env = append(r.env, "COFFERDAM_CONFIG="+filepath.Join(r.dir, "operator.toml"), "SSL_CERT_FILE="+filepath.Join(r.dir, "provider.pem"))
	r.shell(`mkdir project && cd project && printf 'test:\n\techo tested $(MODE)\n' > Makefile && echo '{"name":"x","version":"1.0.0"}' > package.json &&
		echo '{"name":"x","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{"":{"name":"x","version":"1.0.0"}}}' > package-lock.json`)
	for _, line := range blocks(t, "docs/run.md", 7) {
		r.Logf("$ %s", line)
		if !strings.HasPrefix(line, "cofferdam ") {
			t.Errorf("the document has a command that this test does not know: %s", line)
			continue
		}
		r.shell("cd project && " + line)
	}
}
