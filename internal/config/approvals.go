package config

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// fileApprovals is who is told of questions to people, and which programs outside
// bring their answers, in the operator file:
//
//	[approvals]
//	wait = 300 # seconds that a question waits
//	webhook = "https://chat.example.com/hooks/1"
//
//	[approvals.systems.chat]
//	keys = ["whpk_BASE64"] # Ed25519; two while one replaces the other
//	proves = false         # it is trusted to know that a person is there
type fileApprovals struct {
	Wait    *float64              `toml:"wait"` // nil: not said; 0 is out of range, not "for ever"
	Webhook string                `toml:"webhook"`
	Systems map[string]fileSystem `toml:"systems"`
}

type fileSystem struct {
	Keys   []string `toml:"keys"`
	Proves bool     `toml:"proves"`
}

// ApprovalSystem is a program outside that brings people's answers.
type ApprovalSystem struct {
	Keys   []ed25519.PublicKey
	Proves bool
}

// Bounds of what an operator registers. Source: docs/SPECIFICATION.md, "Approvals".
const (
	minWait       = 30   // seconds
	maxWait       = 3600 // seconds
	maxSystems    = 16
	maxSystemKeys = 2
)

// systemName is what such a program is called: it shows on record, and names the
// bindings of people.
var systemName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// keyPrefix begins a public key. Source: the Standard Webhooks specification.
const keyPrefix = "whpk_"

// fillApprovals takes over where notices go and who brings answers.
func (f operatorFile) fillApprovals(c *Config, fail func(key, reason string) error) error {
	a := f.body.Approvals
	if w := a.Wait; w != nil {
		if c.ApprovalWait = time.Duration(*w * float64(time.Second)); !(*w >= minWait && *w <= maxWait) {
			return fail("approvals.wait", "is not from 30 to 3600 seconds")
		}
	}
	if a.Webhook != "" {
		u, err := url.Parse(a.Webhook)
		if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && !(u.Scheme == "http" && u.Hostname() == "127.0.0.1") {
			return fail("approvals.webhook", "is no https address without a user")
		}
	}
	c.Webhook = a.Webhook
	if len(a.Systems) > maxSystems {
		return fail("approvals.systems", "has more than 16")
	}
	for name, s := range a.Systems {
		key := "approvals.systems." + name
		if !systemName.MatchString(name) {
			return fail("approvals.systems", "a name is 1 to 32 of a to z, 0 to 9 and -")
		}
		if len(s.Keys) < 1 || len(s.Keys) > maxSystemKeys {
			return fail(key+".keys", "has one key, or two while one replaces the other")
		}
		out := ApprovalSystem{Proves: s.Proves}
		for _, text := range s.Keys {
			encoded, ok := strings.CutPrefix(text, keyPrefix)
			k, err := base64.StdEncoding.DecodeString(encoded)
			if !ok || err != nil || len(k) != ed25519.PublicKeySize || bytes.Equal(k, make([]byte, ed25519.PublicKeySize)) {
				return fail(key+".keys", "a key is whpk_ and the 32 bytes of an Ed25519 public key in base64")
			}
			if slices.ContainsFunc(out.Keys, func(o ed25519.PublicKey) bool { return o.Equal(ed25519.PublicKey(k)) }) {
				return fail(key+".keys", "has one twice")
			}
			out.Keys = append(out.Keys, k)
		}
		if c.Systems == nil {
			c.Systems = map[string]ApprovalSystem{}
		}
		c.Systems[name] = out
	}
	return nil
}
