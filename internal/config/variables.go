package config

import (
	"context"
	"net/url"
	"path"
	"slices"
	"strings"
)

// SearchPath returns the PATH of a box: that of this process as far as it lies
// in /usr, which is all of the machine that a box sees, then the usual folders
// and where Go's own installer puts it, which sudo's PATH leaves out.
func SearchPath(own string) string {
	usual := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"
	var dirs []string
	for _, d := range strings.Split(own+":"+usual, ":") {
		inside := strings.HasPrefix(d, "/usr/") || d == "/bin" || d == "/sbin"
		if inside && path.Clean(d) == d && !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return strings.Join(dirs, ":")
}

// Variables returns what tools inside a box need to use the registries that
// this machine's own tools are set up for, as NAME=VALUE. Credentials in a
// URL stay outside; a box that needs them gets them attached by a gateway.
func Variables(ctx context.Context, m Machine) []string {
	var env []string
	add := func(name, value string) {
		if value = strings.TrimSpace(value); value != "" {
			env = append(env, name+"="+value)
		}
	}
	add("NPM_CONFIG_REGISTRY", bare(m.npmRegistry(ctx)))
	lines := strings.Split(string(m.output(ctx, "go", "env", "GOPROXY", "GOSUMDB")), "\n")
	if len(lines) > 1 {
		proxies := strings.FieldsFunc(lines[0], func(r rune) bool { return r == ',' || r == '|' })
		for i, p := range proxies {
			proxies[i] = bare(p)
		}
		add("GOPROXY", strings.Join(proxies, ","))
		add("GOSUMDB", lines[1])
	}
	index, _ := m.pipIndexes()
	add("PIP_INDEX_URL", bare(index))
	if uv, _ := m.uvIndexes(); uv != "" {
		index = uv
	}
	add("UV_DEFAULT_INDEX", bare(index)) // uv reads nothing of pip's
	return env
}

// bare returns a URL without credentials; other words, such as direct, as they are.
func bare(raw string) string {
	raw = strings.TrimSpace(raw)
	if !strings.Contains(raw, "://") {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}
