package config

import (
	"strings"
	"testing"
	"time"

	"cofferdam"
)

func TestWorkspaces(t *testing.T) {
	none := func(string) string { return "" }
	text := "[workspaces]\nkeep = \"48h\"\nmax_size = \"40GiB\"\nbundles = \"1000h\"\n"
	c, err := Load(map[string]string{"config": write(t, "c.toml", text, 0o600)}, none)
	if want := (Workspaces{Keep: 48 * time.Hour, MaxSize: 40 << 30, Bundles: 1000 * time.Hour}); err != nil || c.Workspaces != want {
		t.Errorf("%+v %v", c.Workspaces, err)
	}
	for _, bad := range []string{
		`keep = "59m"`, `keep = "-1h"`, `keep = "0"`, `keep = "fourteen days"`, `keep = "87601h"`, `keep = 14`, `bundles = "1s"`, `max_size = "0"`, `max_size = "much"`, `colour = "red"`,
	} {
		_, err := Load(map[string]string{"config": write(t, "c.toml", "[workspaces]\n"+bad+"\n", 0o600)}, none)
		if cofferdam.KindOf(err) != cofferdam.Invalid || err == nil || cofferdam.HintOf(err) == "" || !strings.Contains(err.Error(), strings.Fields(bad)[0]) {
			t.Errorf("%s: %v (%s)", bad, err, cofferdam.HintOf(err))
		}
	}
}
