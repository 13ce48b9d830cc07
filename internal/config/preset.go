package config

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Machine is where presets are read from: the files, variables and commands of
// this machine's package managers. The zero value reads nothing.
//
// The files of npm and pip are read before the tools are asked: they take
// seconds to answer, and a server should not wait for that at every start.
type Machine struct {
	// Run returns the output of a program, or an error if there is none.
	Run    func(ctx context.Context, name string, args ...string) ([]byte, error)
	Find   func(program string) (string, error) // its absolute path, links resolved
	Getenv func(string) string
	Root   string // before every path; "" for this machine's own
}

// presetTimeout bounds a tool that is run.
const presetTimeout = 15 * time.Second

// ThisMachine reads the tools installed here. They run in the root folder, so
// that no project's own configuration is read.
func ThisMachine() Machine {
	return Machine{
		Getenv: os.Getenv,
		Find: func(program string) (string, error) {
			path, err := exec.LookPath(program)
			if err != nil {
				return "", err
			}
			return filepath.EvalSymlinks(path)
		},
		Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, presetTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Dir = "/"
			cmd.WaitDelay = time.Second
			return cmd.Output()
		},
	}
}

// has says whether a program is installed.
func (m Machine) has(program string) bool {
	if m.Find == nil {
		return false
	}
	_, err := m.Find(program)
	return err == nil
}

func (m Machine) env(name string) string {
	if m.Getenv == nil {
		return ""
	}
	return m.Getenv(name)
}

// file returns the text of a configuration file; "" if it is not there, or is
// no text file of a sane size.
func (m Machine) file(path string) string {
	if path == "" {
		return ""
	}
	data, _, err := readBounded(m.Root + path)
	if err != nil || !utf8.Valid(data) {
		return ""
	}
	return string(data)
}

// Presets returns the hosts of each preset, as HOST or HOST:PORT: npm, pip, go
// and apt from the machine's own tools, then those of the operator file, which
// replace them. A tool that is missing or does not answer leaves its preset
// out; a task that asks for it is then refused, which is the safe side.
func Presets(ctx context.Context, c Config, m Machine) map[string][]string {
	out := map[string][]string{}
	for name, hosts := range map[string][]string{"npm": m.npm(ctx), "pip": m.pip(ctx), "go": m.golang(ctx), "apt": m.apt()} {
		if hosts = tidy(hosts); len(hosts) > 0 {
			out[name] = hosts
		}
	}
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

// apt reads one-line (.list) and deb822 (.sources) files.
func (m Machine) apt() []string {
	if !m.has("apt-get") {
		return nil
	}
	dir := m.Root + "/etc/apt"
	var hosts []string
	lists, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.list")) // the pattern is well formed
	for _, path := range append(lists, filepath.Join(dir, "sources.list")) {
		hosts = append(hosts, m.aptHosts(path, func(line string) bool { return strings.HasPrefix(line, "deb") })...)
	}
	sources, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.sources"))
	for _, path := range sources {
		hosts = append(hosts, m.aptHosts(path, func(line string) bool { return strings.HasPrefix(strings.ToLower(line), "uris:") })...)
	}
	return hosts
}

func (m Machine) aptHosts(path string, wanted func(string) bool) []string {
	var hosts []string
	for line := range strings.Lines(m.file(strings.TrimPrefix(path, m.Root))) {
		line = strings.TrimSpace(line)
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
