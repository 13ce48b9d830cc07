package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUvIndexes: the hosts of the indexes that uv is set up for are in the preset
// of Python packages, beside pip's or alone, and its own one is what uv in a box is
// told, without credentials. uv is not run here: this is what its documents say.
func TestUvIndexes(t *testing.T) {
	for name, c := range map[string]struct {
		files, env map[string]string
		want       []string // hosts
		told       string   // UV_DEFAULT_INDEX of a box
	}{
		"nothing":               {nil, nil, nil, ""},
		"variable":              {nil, map[string]string{"UV_DEFAULT_INDEX": "https://u:p@in.test/simple"}, []string{"in.test"}, "https://in.test/simple"},
		"variable of before":    {nil, map[string]string{"UV_INDEX_URL": "https://old.test/simple"}, []string{"old.test"}, "https://old.test/simple"},
		"with a name":           {nil, map[string]string{"UV_DEFAULT_INDEX": "corp=https://in.test:8443/simple?a=b"}, []string{"in.test:8443"}, "https://in.test:8443/simple?a=b"},
		"more indexes":          {nil, map[string]string{"UV_INDEX": "a=https://a.test/s https://b.test/s", "UV_EXTRA_INDEX_URL": "https://c.test"}, []string{"a.test", "b.test", "c.test"}, ""},
		"of the user":           {map[string]string{"h/.config/uv/uv.toml": "[[index]]\nurl = \"https://more.test/s\"\n[[index]]\nname = \"corp\"\nurl = \"https://u:p@in.test/s\"\ndefault = true\n", "etc/uv/uv.toml": "index-url = \"https://machine.test/s\"\n"}, map[string]string{"HOME": "/h"}, []string{"in.test", "more.test"}, "https://in.test/s"},
		"of the machine":        {map[string]string{"etc/uv/uv.toml": "extra-index-url = [\"https://more.test/s\"]\n[pip]\nindex-url = \"https://machine.test/s\"\n"}, nil, []string{"machine.test", "more.test"}, "https://machine.test/s"},
		"a file named":          {map[string]string{"x.toml": "index-url = \"https://named.test/s\"\n", "etc/uv/uv.toml": "index-url = \"https://machine.test/s\"\n"}, map[string]string{"UV_CONFIG_FILE": "/x.toml"}, []string{"named.test"}, "https://named.test/s"},
		"no file is to be read": {map[string]string{"etc/uv/uv.toml": "index-url = \"https://machine.test/s\"\n"}, map[string]string{"UV_NO_CONFIG": "1"}, nil, ""},
		"no TOML":               {map[string]string{"etc/uv/uv.toml": "index-url = \"https://machine.test/s\nx"}, nil, nil, ""},
		"a key of another type": {map[string]string{"etc/uv/uv.toml": "index-url = 7\n"}, nil, nil, ""},
		"binary":                {map[string]string{"etc/uv/uv.toml": "\xff\x00"}, nil, nil, ""},
		"a folder":              {map[string]string{"etc/uv/uv.toml": "index-url = \"../wheels\"\n"}, map[string]string{"UV_DEFAULT_INDEX": "/srv/wheels"}, nil, ""},
	} {
		m := machine(t, c.files, c.env, "/usr/bin/uv")
		if d := cmp.Diff(c.want, Presets(t.Context(), Config{}, m)["pip"]); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		told := ""
		for _, v := range Variables(t.Context(), m) {
			if value, ok := strings.CutPrefix(v, "UV_DEFAULT_INDEX="); ok {
				told = value
			}
		}
		if told != c.told {
			t.Errorf("%s: uv in a box is told %q, not %q", name, told, c.told)
		}
	}
	// Beside pip both count, and each is told its own.
	m := machine(t, map[string]string{"etc/pip.conf": "[global]\nindex-url = https://pip.test/s\n"}, map[string]string{"UV_DEFAULT_INDEX": "https://uv.test/s"}, "/usr/bin/pip", "/usr/bin/uv")
	if got := Presets(t.Context(), Config{}, m)["pip"]; !slices.Equal(got, []string{"pip.test", "uv.test"}) {
		t.Errorf("beside pip: %q", got)
	}
	if got := Variables(t.Context(), m); !slices.Contains(got, "PIP_INDEX_URL=https://pip.test/s") || !slices.Contains(got, "UV_DEFAULT_INDEX=https://uv.test/s") {
		t.Errorf("beside pip, told: %q", got)
	}
	// Whoever has no uv is not asked for its files.
	if got := Presets(t.Context(), Config{}, machine(t, nil, map[string]string{"UV_DEFAULT_INDEX": "https://uv.test/s"}, "/usr/bin/pip"))["pip"]; len(got) != 0 {
		t.Errorf("without uv: %q", got)
	}
}
