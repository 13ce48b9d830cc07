package cli

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam/internal/config"
)

func newConfig(a *app) *cobra.Command {
	return newNoun("config", "See the settings that count", newConfigView(a))
}

// setting is one setting as config view prints it.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"` // flag, environment, file or default
}

func newConfigView(a *app) *cobra.Command {
	s := &serverFlags{}
	c := &cobra.Command{
		Use: "view", Short: "Show each setting and where it comes from", Args: none,
		Long: "Show the settings that a server would start with here, as this user, and which server this command calls: each with its value and whether a flag, " +
			"the environment, the file or nobody set it. What only the file can hold, such as egress, it is read for. No server is needed." + exits(0, 1, 2),
		Example: "  cofferdam config view\n  cofferdam config view --config ./cofferdam.toml --json",
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := s.load(a, c)
			if err != nil {
				return err
			}
			called, err := config.LoadClient(map[string]string{"server": a.server, "token-file": a.tokenFile}, a.Getenv)
			if err != nil {
				return err
			}
			out := struct {
				Schema   string    `json:"schema"`
				File     string    `json:"file"`
				Settings []setting `json:"settings"`
			}{Schema: "cofferdam/config/v1", File: conf.File}
			for _, s := range config.Settings() {
				if !s.Hidden {
					out.Settings = append(out.Settings, setting{s.Name, s.Value(conf), conf.Sources[s.Name]})
				}
			}
			out.Settings = append(out.Settings, setting{"server", withoutPassword(called.Server), called.Sources["server"]})
			if a.json {
				return a.object(out)
			}
			lines := []label{{"file", conf.File}}
			for _, s := range out.Settings {
				lines = append(lines, label{s.Name, cmp.Or(s.Value, "-") + "  (" + s.Source + ")"})
			}
			return a.labels(lines)
		},
	}
	s.add(c)
	return c
}

// withoutPassword is where a server is, for eyes that the password of a proxy before
// it is not for.
func withoutPassword(server string) string {
	u, err := url.Parse(server)
	if err == nil && u.User != nil {
		return u.Redacted()
	}
	if err != nil && !strings.HasPrefix(server, "unix:") {
		return "no URL"
	}
	return server
}
