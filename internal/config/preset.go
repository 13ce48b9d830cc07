package config

import (
	"bufio"
	"bytes"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Machine is where presets are read from: commands of this machine and the
// package manager's files. The zero value reads nothing.
type Machine struct {
	// Run returns the output of a program, or an error if there is none.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
	Apt string // folder with sources.list and sources.list.d
}

// presetTimeout bounds each tool: npm needs up to 2 s on a busy small host.
const presetTimeout = 15 * time.Second

// ThisMachine reads the tools installed here. They run in the root folder, so
// that no project's own configuration is read.
func ThisMachine() Machine {
	return Machine{Apt: "/etc/apt", Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, presetTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = "/"
		cmd.WaitDelay = time.Second
		return cmd.Output()
	}}
}

// Presets returns the hosts of each preset, as HOST or HOST:PORT: npm, pip, go
// and apt from the machine's own tools, then those of the operator file, which
// replace them. A tool that is missing or does not answer leaves its preset
// out; a task that asks for it is then refused, which is the safe side.
func Presets(ctx context.Context, c Config, m Machine) map[string][]string {
	var (
		mu  sync.Mutex // guards out
		wg  sync.WaitGroup
		out = map[string][]string{}
	)
	for name, read := range map[string]func(context.Context) []string{
		"npm": m.npm, "pip": m.pip, "go": m.golang, "apt": m.apt,
	} {
		wg.Go(func() {
			hosts := tidy(read(ctx))
			mu.Lock()
			defer mu.Unlock()
			if len(hosts) > 0 {
				out[name] = hosts
			}
		})
	}
	wg.Wait()
	for name, hosts := range c.Presets {
		out[name] = hosts
	}
	return out
}

func (m Machine) output(ctx context.Context, name string, args ...string) []byte {
	if m.Run == nil {
		return nil
	}
	out, err := m.Run(ctx, name, args...)
	if err != nil || len(out) > maxFile {
		return nil
	}
	return out
}

func (m Machine) npm(ctx context.Context) []string {
	return []string{hostOf(string(m.output(ctx, "npm", "config", "get", "registry")))}
}

// golang reads GOPROXY, whose entries are separated by comma or bar, and the
// checksum database. "direct" and "off" name no host.
func (m Machine) golang(ctx context.Context) []string {
	lines := strings.Split(string(m.output(ctx, "go", "env", "GOPROXY", "GOSUMDB")), "\n")
	if len(lines) < 2 {
		return nil
	}
	var hosts []string
	for _, p := range strings.FieldsFunc(lines[0], func(r rune) bool { return r == ',' || r == '|' }) {
		hosts = append(hosts, hostOf(p))
	}
	sum := strings.Fields(lines[1])
	switch {
	case len(sum) == 2: // KEY URL
		hosts = append(hosts, hostOf(sum[1]))
	case len(sum) == 1 && sum[0] != "off":
		name, _, _ := strings.Cut(sum[0], "+")
		hosts = append(hosts, name)
	}
	return hosts
}

// pipDefault prints the index that pip uses without a setting, and where that
// one keeps its files.
const pipDefault = `from pip._internal.models.index import PyPI as p; print(p.simple_url); print("https://" + p.file_storage_domain)`

// pip reads the index and the extra ones; without a setting it asks pip for the
// index it then uses.
func (m Machine) pip(ctx context.Context) []string {
	if m.Run == nil {
		return nil
	}
	out, err := m.Run(ctx, "pip", "config", "list")
	if err != nil || len(out) > maxFile {
		return nil
	}
	var hosts []string
	index := false
	for line := range strings.Lines(string(out)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		key = key[strings.LastIndexByte(key, '.')+1:]
		if key != "index-url" && key != "extra-index-url" {
			continue
		}
		index = index || key == "index-url"
		value = strings.ReplaceAll(strings.Trim(value, `'"`), `\n`, " ")
		for _, u := range strings.Fields(value) {
			hosts = append(hosts, hostOf(u))
		}
	}
	own := strings.Fields(string(m.output(ctx, "python3", "-c", pipDefault)))
	if len(own) == 2 && (!index || slices.Contains(hosts, hostOf(own[0]))) {
		hosts = append(hosts, hostOf(own[0]), hostOf(own[1]))
	}
	return hosts
}

// apt reads one-line (.list) and deb822 (.sources) files.
func (m Machine) apt(context.Context) []string {
	if m.Apt == "" {
		return nil
	}
	var hosts []string
	lists, _ := filepath.Glob(filepath.Join(m.Apt, "sources.list.d", "*.list")) // the pattern is well formed
	for _, path := range append(lists, filepath.Join(m.Apt, "sources.list")) {
		hosts = append(hosts, aptHosts(path, func(line string) bool { return strings.HasPrefix(line, "deb") })...)
	}
	sources, _ := filepath.Glob(filepath.Join(m.Apt, "sources.list.d", "*.sources"))
	for _, path := range sources {
		hosts = append(hosts, aptHosts(path, func(line string) bool { return strings.HasPrefix(strings.ToLower(line), "uris:") })...)
	}
	return hosts
}

func aptHosts(path string, wanted func(string) bool) []string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) > maxFile {
		return nil
	}
	var hosts []string
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if !wanted(line) {
			continue
		}
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "http") {
				hosts = append(hosts, hostOf(word))
			}
		}
	}
	return hosts
}

// hostOf returns HOST or HOST:PORT of an http or https URL, "" otherwise.
// Credentials in the URL are dropped; a literal address is none of a preset's.
func hostOf(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return ""
	}
	if _, err := ParseAddress(u.Hostname()); err == nil {
		return ""
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if u.Port() != "" {
		return host + ":" + u.Port()
	}
	return host
}

func tidy(hosts []string) []string {
	hosts = slices.DeleteFunc(hosts, func(h string) bool { return h == "" })
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
