package daemon

import (
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/internal/config"
)

// What policy cannot read is told when the server starts, with the file that
// holds it, and not by the first task that is blocked.
func TestAllowListThatPolicyCannotRead(t *testing.T) {
	t.Parallel()
	const file = "/etc/cofferdam/cofferdam.toml"
	known := map[string][]string{"npm": {"registry.example.com"}}
	for name, c := range map[string]struct {
		config config.Config
		says   string
	}{
		"good":                 {config.Config{File: file, Allow: []string{"example.com:443", "preset:npm"}}, ""},
		"nothing":              {config.Config{}, ""},
		"space":                {config.Config{File: file, Allow: []string{"example.com", "x y"}}, `key "egress.allow": allow list, entry 2 ("x y")`},
		"scheme":               {config.Config{File: file, Allow: []string{"https://example.com"}}, `key "egress.allow": allow list, entry 1`},
		"preset that is none":  {config.Config{File: file, Allow: []string{"preset:cobol"}}, "no such preset"},
		"preset nobody allows": {config.Config{File: file, Presets: map[string][]string{"own": {"x y"}}}, `key "presets.own"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkAllow(c.config, known)
			switch {
			case c.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.says == "":
			case err == nil:
				t.Error("taken")
			case !strings.Contains(err.Error(), "file "+file) || !strings.Contains(err.Error(), c.says):
				t.Errorf("got %q; want the file and %q", err, c.says)
			case cofferdam.KindOf(err) != cofferdam.Invalid || cofferdam.HintOf(err) == "":
				t.Errorf("kind %v, hint %q", cofferdam.KindOf(err), cofferdam.HintOf(err))
			}
		})
	}
}
