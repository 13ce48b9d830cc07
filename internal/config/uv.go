package config

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// uvSettings are the keys of a uv.toml that name an index.
type uvSettings struct {
	Index []struct {
		URL     string `toml:"url"`
		Default bool   `toml:"default"`
	} `toml:"index"`
	IndexURL string   `toml:"index-url"`
	Extra    []string `toml:"extra-index-url"`
	Pip      struct {
		IndexURL string   `toml:"index-url"`
		Extra    []string `toml:"extra-index-url"`
	} `toml:"pip"`
}

// uvIndexes is what the variables and files of uv say, the nearest first; uv does
// not read pip's. index is "" where nothing is set.
func (m Machine) uvIndexes() (index string, extra []string) {
	if !m.has("uv") {
		return "", nil
	}
	index = plainIndex(firstOf(m.env("UV_DEFAULT_INDEX"), m.env("UV_INDEX_URL")))
	for _, u := range strings.Fields(m.env("UV_INDEX") + " " + m.env("UV_EXTRA_INDEX_URL")) {
		extra = append(extra, plainIndex(u))
	}
	files := []string{m.env("UV_CONFIG_FILE")}
	if files[0] == "" {
		files = []string{under(firstOf(m.env("XDG_CONFIG_HOME"), under(m.env("HOME"), ".config")), "uv/uv.toml")}
		for _, dir := range filepath.SplitList(firstOf(m.env("XDG_CONFIG_DIRS"), "/etc/xdg")) {
			files = append(files, under(dir, "uv/uv.toml"))
		}
		files = append(files, "/etc/uv/uv.toml")
	}
	if m.env("UV_NO_CONFIG") != "" {
		files = nil
	}
	for _, path := range files {
		if path == os.DevNull {
			continue
		}
		var s uvSettings
		if toml.Unmarshal([]byte(m.file(path)), &s) != nil {
			continue // uv does not take it either
		}
		own := ""
		for _, i := range s.Index {
			if i.Default {
				own = firstOf(own, plainIndex(i.URL))
			} else {
				extra = append(extra, i.URL)
			}
		}
		index = firstOf(index, own, plainIndex(s.IndexURL), plainIndex(s.Pip.IndexURL))
		extra = append(append(extra, s.Extra...), s.Pip.Extra...)
	}
	return index, extra
}

// plainIndex is the URL of an index that may have a name, as in NAME=URL; "" for
// a folder, which no box has.
func plainIndex(text string) string {
	if name, url, ok := strings.Cut(text, "="); ok && !strings.Contains(name, ":") {
		text = url
	}
	if !strings.Contains(text, "://") {
		return ""
	}
	return text
}
