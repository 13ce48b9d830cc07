package config

import (
	"net/url"
	"path/filepath"
)

// fileApprovals is who is told of questions to people, in the operator file:
//
//	[approvals]
//	webhook = "https://chat.example.com/hooks/1"
//	webhook_secret_file = "/etc/cofferdam/webhook" # 32 characters or more, readable for the server alone
type fileApprovals struct {
	Webhook string `toml:"webhook"`
	Secret  string `toml:"webhook_secret_file"`
}

// fillApprovals takes over where notices go. Without a secret none is sent: nobody
// could tell it from another's.
func (f operatorFile) fillApprovals(c *Config, fail func(key, reason string) error) error {
	a := f.body.Approvals
	if a == (fileApprovals{}) {
		return nil
	}
	u, err := url.Parse(a.Webhook)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && !(u.Scheme == "http" && u.Hostname() == "127.0.0.1"):
		return fail("approvals.webhook", "is no https address without a user")
	case !filepath.IsAbs(a.Secret):
		return fail("approvals.webhook_secret_file", "is no absolute path of a file")
	}
	c.Webhook, c.WebhookSecret = a.Webhook, a.Secret
	return nil
}
