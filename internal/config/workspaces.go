package config

import (
	"fmt"
	"time"
)

// Workspaces is how long the workspaces of attempts are kept.
type Workspaces struct {
	Keep    time.Duration // after the last session; 0: the default of package workspace
	MaxSize int64         // bytes of all of them together; 0: no bound
	Bundles time.Duration // of what was exported before a removal; 0: the default
}

// fileWorkspaces is the table as TOML has it.
//
//	[workspaces]
//	keep = "336h"
//	max_size = "100GiB"
//	bundles = "2160h"
type fileWorkspaces struct {
	Keep    string `toml:"keep"`
	MaxSize string `toml:"max_size"`
	Bundles string `toml:"bundles"`
}

// Bounds of the times. Source: docs/SPECIFICATION.md, "Workspaces".
const (
	minKeep = time.Hour
	maxKeep = 10 * 365 * 24 * time.Hour
)

// fillWorkspaces takes over the table [workspaces].
func (f operatorFile) fillWorkspaces(c *Config, fail func(key, reason string) error) error {
	in := f.body.Workspaces
	for _, t := range []struct {
		key, text string
		to        *time.Duration
	}{{"keep", in.Keep, &c.Workspaces.Keep}, {"bundles", in.Bundles, &c.Workspaces.Bundles}} {
		if t.text == "" {
			continue
		}
		d, err := time.ParseDuration(t.text)
		if err != nil || d < minKeep || d > maxKeep {
			return fail("workspaces."+t.key, fmt.Sprintf("%.40q is no time between an hour and ten years, such as \"336h\"", t.text))
		}
		*t.to = d
	}
	if in.MaxSize == "" {
		return nil
	}
	n, err := parseSize(in.MaxSize)
	if err != nil {
		return fail("workspaces.max_size", err.Error())
	}
	c.Workspaces.MaxSize = n
	return nil
}
