package config

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestWebhookOfApprovals(t *testing.T) {
	load := func(text string) (Config, error) {
		return Load(map[string]string{"config": write(t, "a.toml", text, 0o600)}, none)
	}
	c, err := load("[approvals]\nwebhook = \"https://chat.test/hook?x=1\"\n")
	if err != nil || c.Webhook != "https://chat.test/hook?x=1" {
		t.Errorf("%q %v", c.Webhook, err)
	}
	for text, want := range map[string]time.Duration{"30": 30 * time.Second, "3600": time.Hour, "45.5": 45500 * time.Millisecond, "29.9": -1, "3601": -1, "0": -1, "-1": -1, "nan": -1, "inf": -1} {
		c, err := load("[approvals]\nwait = " + text + "\n")
		if (err == nil) != (want > 0) || err == nil && c.ApprovalWait != want || err != nil && !strings.Contains(err.Error(), "approvals.wait") {
			t.Errorf("wait = %s: %s, %v", text, c.ApprovalWait, err)
		}
	}
	for url, key := range map[string]string{
		"http://chat.test/": "approvals.webhook", "https://a:b@chat.test/": "approvals.webhook", "https://": "approvals.webhook", "chat.test": "approvals.webhook",
		"http://127.0.0.1.chat.test/": "approvals.webhook", "file:///etc/passwd": "approvals.webhook",
	} {
		if _, err := load("[approvals]\nwebhook = \"" + url + "\"\n"); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestSystemsThatBringAnswers: a system has keys of its own, and proves nothing
// unless the file says so.
func TestSystemsThatBringAnswers(t *testing.T) {
	load := func(text string) (Config, error) {
		return Load(map[string]string{"config": write(t, "a.toml", "[approvals.systems."+text, 0o600)}, none)
	}
	key := func(b byte) string {
		return `"whpk_` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string([]byte{b}), 32))) + `"`
	}
	c, err := load("chat]\nkeys = [" + key(1) + ", " + key(2) + "]\n[approvals.systems.desk]\nkeys = [" + key(3) + "]\nproves = true\n")
	if err != nil || len(c.Systems) != 2 || len(c.Systems["chat"].Keys) != 2 || c.Systems["chat"].Proves || !c.Systems["desk"].Proves {
		t.Errorf("%+v, %v", c.Systems, err)
	}
	for _, text := range []string{
		"chat]\n", "chat]\nkeys = []\n", "chat]\nkeys = [\"\"]\n", "chat]\nkeys = [\"whsec_AAAA\"]\n", "chat]\nkeys = [\"whpk_AAAA\"]\n", "chat]\nkeys = [" + key(0) + "]\n",
		"chat]\nkeys = [" + key(1) + ", " + key(1) + "]\n", "chat]\nkeys = [" + key(1) + ", " + key(2) + ", " + key(3) + "]\n", "\"Chat Bot\"]\nkeys = [" + key(1) + "]\n",
		"chat]\nkeys = [" + key(1) + "]\nprove = true\n",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), "approvals.systems") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestApprovalsDocument: the part of the operator's file in docs/approvals.md is one.
func TestApprovalsDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "approvals.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```toml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(m) != 1 {
		t.Fatalf("%d parts of an operator's file", len(m))
	}
	c, err := Load(map[string]string{"config": write(t, "a.toml", m[0][1], 0o600)}, none)
	if err != nil || c.Webhook == "" || len(c.Systems["chat"].Keys) != 1 || c.Systems["chat"].Proves {
		t.Errorf("%+v, %v", c.Systems, err)
	}
}
