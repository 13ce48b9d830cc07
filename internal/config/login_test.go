package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSignInTable(t *testing.T) {
	none := func(string) string { return "" }
	c, err := Load(map[string]string{"config": write(t, "c.toml", "[sign_in]\nissuer = \"https://id.example.com\"\nclient = \"cofferdam\"\n", 0o600)}, none)
	if err != nil || c.SignIn != (SignIn{Issuer: "https://id.example.com", Client: "cofferdam"}) {
		t.Errorf("%+v %v", c.SignIn, err)
	}
	for _, good := range []string{"https://cofferdam.example.com", "https://cofferdam.example.com:8443", "http://localhost:7420"} {
		c, err := Load(map[string]string{"config": write(t, "c.toml", "[sign_in]\npasskey_origin = \""+good+"\"\n", 0o600)}, none)
		if err != nil || c.SignIn != (SignIn{PasskeyOrigin: good}) {
			t.Errorf("%+v %v", c.SignIn, err)
		}
	}
	for _, bad := range []string{
		"passkey_origin = \"cofferdam.example.com\"", "passkey_origin = \"https://\"", "passkey_origin = \"https://a.example.com/\"", "passkey_origin = \"https://a.example.com/x\"",
		"passkey_origin = \"http://a.example.com\"", "passkey_origin = \"http://127.0.0.1:7420\"", "passkey_origin = \"https://[::1]\"", "passkey_origin = \"https://u@a.example.com\"",
		"passkey_origin = \"https://A.example.com\"", "passkey_origin = \"https://a.example.com?x\"", "passkey_origin = \"https://a.example.com\"\nissuer = \"https://id.example.com\"",
		"issuer = \"https://id.example.com\"", "client = \"x\"", "issuer = \"http://id.example.com\"\nclient = \"x\"", "issuer = \"\"\nclient = \"x\"",
		"issuer = 7\nclient = \"x\"", "issuer = \"https://id.example.com\"\nclient = \"x\"\nsecret = \"y\"",
	} {
		if _, err := Load(map[string]string{"config": write(t, "c.toml", "[sign_in]\n"+bad+"\n", 0o600)}, none); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// A login is kept for the server that it is of, and open to nobody else.
func TestLoginIsKeptForOneServer(t *testing.T) {
	home := t.TempDir()
	env := func(name string) string { return map[string]string{"HOME": home}[name] }
	one, two := "https://one.example.com", "https://two.example.com"
	token := "cft_" + strings.Repeat("a", 43)
	left := LoginFile(one, env) + ".new"
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("left over"), 0o666); err != nil { // of an earlier try
		t.Fatal(err)
	}
	if err := SaveLogin(one, token, env); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadToken(LoginFile(one, env)); err != nil || got != token {
		t.Errorf("%q %v", got, err)
	}
	if info, err := os.Stat(LoginFile(one, env)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, err := os.Stat(LoginFile(two, env)); err == nil || LoginFile(one, env) == LoginFile(two, env) {
		t.Errorf("another server has it: %v", err)
	}
	if LoginFile(one, func(string) string { return "" }) != "" || SaveLogin(one, token, func(string) string { return "" }) == nil {
		t.Error("a login without a home is kept somewhere")
	}
	blocked := filepath.Join(home, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveLogin(one, token, func(name string) string { return map[string]string{"XDG_CONFIG_HOME": blocked}[name] }); err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("into a file: %v", err)
	}
}
