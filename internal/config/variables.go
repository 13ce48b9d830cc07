package config

import (
	"context"
	"net/url"
	"strings"
)

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
	add("NPM_CONFIG_REGISTRY", bare(string(m.output(ctx, "npm", "config", "get", "registry"))))
	lines := strings.Split(string(m.output(ctx, "go", "env", "GOPROXY", "GOSUMDB")), "\n")
	if len(lines) > 1 {
		proxies := strings.FieldsFunc(lines[0], func(r rune) bool { return r == ',' || r == '|' })
		for i, p := range proxies {
			proxies[i] = bare(p)
		}
		add("GOPROXY", strings.Join(proxies, ","))
		add("GOSUMDB", lines[1])
	}
	for line := range strings.Lines(string(m.output(ctx, "pip", "config", "list"))) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && strings.HasSuffix(key, ".index-url") {
			add("PIP_INDEX_URL", bare(strings.Trim(value, `'"`)))
		}
	}
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
