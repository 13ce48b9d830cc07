package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVariables(t *testing.T) {
	m := machine(t, map[string]string{
		"root/.npmrc":  "registry=https://user:secret@npm.example.com/path/\n",
		"etc/pip.conf": "[global]\ncert=/x\nindex-url=https://u:p@pip.example.com/simple\n",
	}, map[string]string{"HOME": "/root", "output of go": "https://u:p@go.example.com,direct\noff\n"}, "/usr/bin/npm", "/usr/bin/pip")
	want := []string{
		"NPM_CONFIG_REGISTRY=https://npm.example.com/path/",
		"GOPROXY=https://go.example.com,direct", "GOSUMDB=off",
		"PIP_INDEX_URL=https://pip.example.com/simple", "UV_DEFAULT_INDEX=https://pip.example.com/simple",
	}
	if diff := cmp.Diff(want, Variables(t.Context(), m)); diff != "" {
		t.Errorf("variables differ (-want +got):\n%s", diff)
	}
	if got := Variables(t.Context(), Machine{}); len(got) != 0 {
		t.Errorf("a machine without tools gives %q", got)
	}
}

func TestSearchPath(t *testing.T) {
	usual := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"
	for own, want := range map[string]string{
		"":                         usual,
		"/root/bin:/usr/bin":       "/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin:/usr/local/go/bin",
		"/usr/lib/x:.:/usr/../etc": "/usr/lib/x:" + usual,
	} {
		if got := SearchPath(own); got != want {
			t.Errorf("SearchPath(%q) = %q, want %q", own, got, want)
		}
	}
}
