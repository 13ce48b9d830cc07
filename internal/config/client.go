package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Client is what the command line needs to reach a server.
type Client struct {
	Server    string // unix:PATH or http://ADDRESS:PORT
	TokenFile string // "" for none
	NoInput   bool   // never ask
	Project   string // "" for the server's own, or the only one the caller is in
	Sources   map[string]string
}

// LoadClient builds a Client from flags ("server", "token-file", "project",
// "no-input", "config"), COFFERDAM_* variables, the user's file and the default.
//
// The user's file is $XDG_CONFIG_HOME/cofferdam/config.toml with the keys
// server and token_file.
func LoadClient(flags map[string]string, getenv func(string) string) (Client, error) {
	file, err := readClientFile(flags["config"], getenv)
	if err != nil {
		return Client{}, err
	}
	c := Client{Sources: map[string]string{}}
	choose := func(name, env, inFile, otherwise string) string {
		for _, s := range []struct{ source, value string }{
			{"flag", flags[name]}, {"environment", getenv(env)}, {"file", inFile},
		} {
			if s.value != "" {
				c.Sources[name] = s.source
				return s.value
			}
		}
		c.Sources[name] = "default"
		return otherwise
	}
	c.Server = choose("server", "COFFERDAM_SERVER", file.Server, "unix:"+usualSocket(getenv))
	c.TokenFile = choose("token-file", "COFFERDAM_TOKEN_FILE", file.TokenFile, "")
	c.Project = choose("project", "COFFERDAM_PROJECT", "", "")
	c.NoInput = choose("no-input", "COFFERDAM_NO_INPUT", "", "") != ""
	return c, c.check()
}

// usualSocket is that of the user's own server, if it has one, or else the
// machine's.
func usualSocket(getenv func(string) string) string {
	if os.Geteuid() != 0 {
		own := filepath.Join(UserState(getenv), "run", "cofferdam.sock")
		if _, err := os.Stat(own); err == nil {
			return own
		}
	}
	return DefaultSocket
}

func (c Client) check() error {
	if err := checkText(c.Server); err != nil {
		return invalid("setting server", err.Error(), "use unix:PATH or http://127.0.0.1:PORT")
	}
	if path, ok := strings.CutPrefix(c.Server, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return invalid("setting server", fmt.Sprintf("%q is not an absolute path", path), "use unix:/run/cofferdam/cofferdam.sock")
		}
		return nil
	}
	if !strings.HasPrefix(c.Server, "http://") && !strings.HasPrefix(c.Server, "https://") {
		return invalid("setting server", fmt.Sprintf("%q is neither unix:PATH nor a URL", c.Server), "use unix:PATH or http://127.0.0.1:PORT")
	}
	return nil
}

type clientFile struct {
	Server    string `toml:"server"`
	TokenFile string `toml:"token_file"`
}

func readClientFile(flagged string, getenv func(string) string) (clientFile, error) {
	path, named := flagged, flagged != ""
	if !named {
		dir := getenv("XDG_CONFIG_HOME")
		if dir == "" {
			home := getenv("HOME")
			if home == "" {
				return clientFile{}, nil
			}
			dir = filepath.Join(home, ".config")
		}
		path = filepath.Join(dir, "cofferdam", "config.toml")
	}
	data, missing, err := readBounded(path)
	if err != nil {
		return clientFile{}, invalid("file "+path, plain(err), "make it readable, or remove it")
	}
	if missing {
		if named {
			return clientFile{}, invalid("file "+path, "there is none", "write it, or leave --config away")
		}
		return clientFile{}, nil
	}
	f, err := parseClientFile(data)
	if err != nil {
		return clientFile{}, invalid("file "+path, err.Error(), "its keys are server and token_file")
	}
	return f, nil
}

func parseClientFile(data []byte) (f clientFile, err error) {
	var all map[string]any
	if err := toml.Unmarshal(data, &all); err != nil {
		return f, at(err)
	}
	faults, err := readTables(all, keyLines(data), func() any { f = clientFile{}; return &f })
	if err != nil {
		return f, err
	}
	return f, told(faults)
}

// ReadToken returns the token in a file, which may be readable by its owner only.
func ReadToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", invalid("token file "+path, plain(err), "name the server's token file with COFFERDAM_TOKEN_FILE")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", invalid("token file "+path, "is open to others", "chmod 600 "+path)
	}
	data, _, err := readBounded(path)
	if err != nil {
		return "", invalid("token file "+path, plain(err), "make it readable for you alone")
	}
	token := strings.TrimSpace(string(data))
	if len(token) < 32 || len(token) > 512 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", invalid("token file "+path, "holds no token", "copy the file that the server made")
	}
	return token, nil
}
