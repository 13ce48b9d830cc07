package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

func (m Machine) npm(ctx context.Context) []string { return []string{hostOf(m.npmRegistry(ctx))} }

// npmRegistry is what "npm config get registry" prints in the root folder:
// variable, the user's file, the global file, npm's own. Only where none of
// them says anything npm itself is asked. "" without npm.
func (m Machine) npmRegistry(ctx context.Context) string {
	if !m.has("npm") {
		return ""
	}
	for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		if v := m.env(name); v != "" {
			return v
		}
	}
	user := m.npmrc(firstOf(m.env("npm_config_userconfig"), m.env("NPM_CONFIG_USERCONFIG"), under(m.env("HOME"), ".npmrc")))
	global := firstOf(m.env("npm_config_globalconfig"), m.env("NPM_CONFIG_GLOBALCONFIG"), under(m.npmPrefix(user), "etc/npmrc"))
	own := ""
	if cli, err := m.Find("npm"); err == nil { // …/npm/bin/npm-cli.js
		own = under(filepath.Dir(filepath.Dir(cli)), "npmrc")
	}
	if set := firstOf(user["registry"], m.npmrc(global)["registry"], m.npmrc(own)["registry"]); set != "" {
		return set
	}
	return string(m.output(ctx, "npm", "config", "get", "registry"))
}

// npmPrefix is the folder above the one that node is in, unless set otherwise.
func (m Machine) npmPrefix(user map[string]string) string {
	node, err := m.Find("node")
	if err != nil {
		node = ""
	} else {
		node = filepath.Dir(filepath.Dir(node))
	}
	return firstOf(m.env("npm_config_prefix"), m.env("NPM_CONFIG_PREFIX"), user["prefix"], m.env("PREFIX"), node)
}

// npmrc reads key = value lines; ${NAME} stands for a variable.
func (m Machine) npmrc(path string) map[string]string {
	keys := map[string]string{}
	for line := range strings.Lines(m.file(path)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		if strings.Contains(value, "${") {
			value = os.Expand(value, m.env)
		}
		keys[strings.TrimSpace(key)] = value
	}
	return keys
}

// pipDefault prints the index that pip uses without a setting, and where that
// one keeps its files.
const pipDefault = `from pip._internal.models.index import PyPI as p; print(p.simple_url); print("https://" + p.file_storage_domain)`

// pip returns the hosts of the index and of the extra ones, those of uv included;
// without a setting pip itself is asked for its index, whose files come from a
// second host.
func (m Machine) pip(ctx context.Context) []string {
	uv, extraOfUV := m.uvIndexes()
	index, extra := m.pipIndexes()
	var hosts []string
	for _, u := range append(append(strings.Fields(extra), extraOfUV...), uv, index) {
		hosts = append(hosts, hostOf(u))
	}
	if !m.has("pip") && !m.has("pip3") {
		return hosts
	}
	if index == "" {
		for _, u := range strings.Fields(string(m.output(ctx, "python3", "-c", pipDefault))) {
			hosts = append(hosts, hostOf(u))
		}
	}
	return hosts
}

// pipIndexes is what pip's variables and files say, the nearest first: its
// variable, the file that PIP_CONFIG_FILE names, those of a virtual environment,
// the user and the machine. "" where nothing is set.
func (m Machine) pipIndexes() (index, extra string) {
	if !m.has("pip") && !m.has("pip3") {
		return "", ""
	}
	index, extra = m.env("PIP_INDEX_URL"), m.env("PIP_EXTRA_INDEX_URL")
	home := m.env("HOME")
	files := []string{
		m.env("PIP_CONFIG_FILE"), under(m.env("VIRTUAL_ENV"), "pip.conf"),
		under(firstOf(m.env("XDG_CONFIG_HOME"), under(home, ".config")), "pip/pip.conf"), under(home, ".pip/pip.conf"),
	}
	for _, dir := range filepath.SplitList(firstOf(m.env("XDG_CONFIG_DIRS"), "/etc/xdg")) {
		files = append(files, under(dir, "pip/pip.conf"))
	}
	if m.env("PIP_CONFIG_FILE") == os.DevNull { // pip's own way to read no file
		files = nil
	} else {
		files = append(files, "/etc/pip.conf")
	}
	for _, path := range files {
		keys := pipConf(m.file(path))
		index, extra = firstOf(index, keys["index-url"]), firstOf(extra, keys["extra-index-url"])
	}
	return index, extra
}

// pipConf reads the sections global and install; the latter wins. A line that
// begins with a blank goes on with the value before it.
func pipConf(text string) map[string]string {
	global, install := map[string]string{}, map[string]string{}
	section, key := map[string]string{}, ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';':
		case trimmed[0] == '[':
			section, key = map[string]string{}, ""
			switch trimmed {
			case "[global]":
				section = global
			case "[install]":
				section = install
			}
		case (line[0] == ' ' || line[0] == '\t') && key != "":
			section[key] += " " + trimmed
		default:
			k, v, _ := strings.Cut(strings.Replace(trimmed, ":", "=", colonFirst(trimmed)), "=")
			key = strings.ReplaceAll(strings.TrimSpace(k), "_", "-")
			section[key] = strings.TrimSpace(v)
		}
	}
	for k, v := range install {
		global[k] = v
	}
	return global
}

// colonFirst is 1 if a colon, the other separator, comes before an equals sign.
func colonFirst(line string) int {
	if i := strings.IndexAny(line, ":="); i >= 0 && line[i] == ':' {
		return 1
	}
	return 0
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v = strings.TrimSpace(v); v != "" {
			return v
		}
	}
	return ""
}

// under joins a folder and a file; "" without a folder.
func under(dir, file string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, file)
}
