package config

import (
	"strings"
	"testing"
)

func TestWebhookOfApprovals(t *testing.T) {
	load := func(text string) (Config, error) {
		return Load(map[string]string{"config": write(t, "a.toml", text, 0o600)}, none)
	}
	c, err := load("[approvals]\nwebhook = \"https://chat.test/hook?x=1\"\nwebhook_secret_file = \"/etc/hook\"\n")
	if err != nil || c.Webhook != "https://chat.test/hook?x=1" || c.WebhookSecret != "/etc/hook" {
		t.Errorf("%q %q %v", c.Webhook, c.WebhookSecret, err)
	}
	for url, key := range map[string]string{
		"http://chat.test/": "approvals.webhook", "https://a:b@chat.test/": "approvals.webhook", "https://": "approvals.webhook", "": "approvals.webhook", "chat.test": "approvals.webhook",
		"http://127.0.0.1.chat.test/": "approvals.webhook", "file:///etc/passwd": "approvals.webhook",
	} {
		if _, err := load("[approvals]\nwebhook = \"" + url + "\"\nwebhook_secret_file = \"/etc/hook\"\n"); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, secret := range []string{"", "hook"} {
		if _, err := load("[approvals]\nwebhook = \"https://chat.test/\"\nwebhook_secret_file = \"" + secret + "\"\n"); err == nil || !strings.Contains(err.Error(), "webhook_secret_file") {
			t.Errorf("secret file %q: %v", secret, err)
		}
	}
}
