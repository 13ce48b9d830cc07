package analysis

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// Changes that look harmless and are not: each is told among what becomes possible
// or has to be read whole.
func TestHarmlessLookingChanges(t *testing.T) {
	const read = "[egress]\nallow = [\"splice:*.a.test\", \"x.a.test\"]\n"
	for _, c := range []struct{ name, before, after, says string }{
		{"a question less", "[egress]\nask = [\"a.test\"]\n", "[egress]\ndeny = [\"z.test\"]\n", "without asking: a.test"},
		{"a question that is only logged", "[egress]\nask = [\"a.test\"]\n", "[[egress.rule]]\nid = \"x\"\neffect = \"ask\"\nhosts = [\"a.test\"]\nmode = \"log-only\"\n", "without asking"},
		{"a question about less", "[egress]\nask = [\"*.a.test\"]\n", "[egress]\nask = [\"x.a.test\"]\n", "without asking: *.a.test"},
		{"an entry less that had a host read", read, "[egress]\nallow = [\"splice:*.a.test\"]\n", "unseen, by splice:*.a.test: x.a.test"},
		{"a forbid less", "[cedar]\ntext = '''forbid (principal, action, resource);'''\n", "", "gone: forbid (principal, action, resource);"},
		{
			"one of two forbids less", "[cedar]\ntext = '''\nforbid (principal, action == Action::\"use\", resource);\nforbid (principal, action == Action::\"run\", resource);\n'''\n",
			"[cedar]\ntext = '''\nforbid (principal, action == Action::\"run\", resource);\n'''\n", "gone: forbid (principal, action == Action::\"use\", resource);",
		},
		{"a class that is only called as one that ships", "", "class = \"read-only\"\n[base]\ndigest = \"sha256:" + fmt.Sprintf("%x", sha256.Sum256([]byte("# Only reads pass.\n"))) + "\"\ntext = \"# Only reads pass.\\n\"\n", "not as this program has it: # Only reads pass."},
	} {
		got := Diff(doc(t, "project", c.before), doc(t, "project", c.after))
		if all := fmt.Sprint(got.Opens, got.Unbounded); !got.Widens() || !strings.Contains(all, c.says) {
			t.Errorf("%s: %+v, nothing says %q", c.name, got, c.says)
		}
	}
	for _, c := range []struct{ name, before, after string }{
		{"read by another entry as well", read, "[egress]\nallow = [\"x.a.test\", \"splice:*.a.test\"]\n"},
		{"unseen before", "[egress]\nallow = [\"splice:*.a.test\", \"splice:x.a.test\"]\n", "[egress]\nallow = [\"splice:*.a.test\"]\n"},
		{"a question that became a deny", "[egress]\nask = [\"a.test\"]\n", "[egress]\ndeny = [\"a.test\"]\n"},
		{"the same Cedar text", "[cedar]\ntext = '''forbid (principal, action, resource);'''\n", "# said\n[cedar]\ntext = '''forbid (principal, action, resource);'''\n"},
	} {
		if got := Diff(doc(t, "project", c.before), doc(t, "project", c.after)); got.Widens() {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
