package config

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// SignIn is where people sign in besides here, and by what else they prove that
// they are there.
type SignIn struct {
	Issuer string `toml:"issuer"` // of an identity provider; "" for none
	Client string `toml:"client"`
	// PasskeyOrigin is where browsers see this server: passkeys are made for it
	// and count nowhere else. "" for none.
	PasskeyOrigin string `toml:"passkey_origin"`
}

// checkOrigin says what is wrong with the origin of passkeys; "" if nothing is.
func checkOrigin(origin string) string {
	u, err := url.Parse(origin)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.String() != origin || strings.ToLower(origin) != origin:
		return "it is not an origin such as https://cofferdam.example.com: scheme, host, and a port if it is another"
	case net.ParseIP(u.Hostname()) != nil:
		return "browsers have no passkeys for addresses; use a name, or localhost"
	case u.Scheme == "https", u.Scheme == "http" && u.Hostname() == "localhost":
		return ""
	}
	return "browsers have passkeys over https, and over http for localhost alone"
}

// LoginFile is where the token of a login at a server is kept: one file for each,
// so that none is sent to another. It is "" for a user without a home.
func LoginFile(server string, getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		if home := getenv("HOME"); home != "" {
			dir = filepath.Join(home, ".config")
		}
	}
	if dir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(dir, "cofferdam", "logins", hex.EncodeToString(sum[:8]))
}

// SaveLogin keeps a token there, readable for this user alone.
func SaveLogin(server, token string, getenv func(string) string) error {
	path := LoginFile(server, getenv)
	if path == "" {
		return invalid("login", "there is no home folder to keep it in", "set HOME or XDG_CONFIG_HOME")
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path+".new", []byte(token+"\n"), 0o600)
	}
	if err == nil {
		err = os.Chmod(path+".new", 0o600) // one that was left over may be open to others
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return invalid("file "+path, plain(err), "make its folder writable for you")
	}
	return nil
}
