package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Environments is the operator's table of what boxes may be made from.
type Environments struct {
	Images     map[string]string // name to an absolute folder, layout:FOLDER, tarball:FILE, or a name in a registry
	Registries []string          // HOST[:PORT] that images may come from
	Packages   bool              // repositories may name Debian packages
	MaxAge     time.Duration     // an older environment is removed; 0: only by need of room
	MaxSize    int64             // bytes of all of them together; 0: no bound but their number
	MaxImages  int64             // bytes of all images together; 0: the default of package image
	Secrets    map[string]SetupSecret
}

// SetupSecret is a secret that setups of some repositories may have.
type SetupSecret struct {
	File  string   `toml:"file"`  // absolute; of its owner alone
	Repos []string `toml:"repos"` // names of repositories
}

// fileEnvironments is the table as TOML has it.
//
//	[environments]
//	registries = ["registry.example.com"]
//	packages = true
//	max_age = "336h"
//	max_size = "40GiB"
//	max_images = "64GiB"
//	[environments.images]
//	web = "layout:/srv/images/web"
//	[environments.secrets.NPM_TOKEN]
//	file = "/etc/cofferdam/npm-token"
//	repos = ["shop"]
type fileEnvironments struct {
	Images     map[string]string      `toml:"images"`
	Registries []string               `toml:"registries"`
	Packages   bool                   `toml:"packages"`
	MaxAge     string                 `toml:"max_age"`
	MaxSize    string                 `toml:"max_size"`
	MaxImages  string                 `toml:"max_images"`
	Secrets    map[string]SetupSecret `toml:"secrets"`
}

// Compiled when they are needed: the command line starts without them.
var (
	variableName = pattern(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	imageName    = pattern(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	registryName = pattern(`^[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?$|^\[[0-9a-fA-F:]{2,39}\](:[0-9]{1,5})?$`)
)

func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// fillEnvironments takes over the table [environments].
func (f operatorFile) fillEnvironments(c *Config, fail func(key, reason string) error) error {
	in, out := f.body.Environments, Environments{Images: map[string]string{}, Packages: f.body.Environments.Packages}
	if len(in.Images) > maxAllow || len(in.Registries) > maxAllow {
		return fail("environments", fmt.Sprintf("more than %d entries", maxAllow))
	}
	for name, source := range in.Images {
		path := source
		for _, kind := range []string{"layout:", "tarball:"} {
			path = strings.TrimPrefix(path, kind)
		}
		switch {
		case !imageName().MatchString(name) || name == "host" || name == "debian":
			return fail("environments.images", fmt.Sprintf("%.80q is no name for an image", name))
		case path != source && (!filepath.IsAbs(path) || filepath.Clean(path) != path), filepath.IsAbs(source) && filepath.Clean(source) != source, source == "":
			return fail("environments.images."+name, fmt.Sprintf("%.200q has no clean absolute path", source))
		}
		out.Images[name] = source
	}
	if len(in.Secrets) > maxAllow {
		return fail("environments.secrets", fmt.Sprintf("more than %d entries", maxAllow))
	}
	for name, v := range in.Secrets {
		switch {
		case !variableName().MatchString(name) || strings.HasPrefix(name, "COFFERDAM_"):
			return fail("environments.secrets", fmt.Sprintf("%.80q is no name of a variable", name))
		case !filepath.IsAbs(v.File) || filepath.Clean(v.File) != v.File:
			return fail("environments.secrets."+name, "file: a clean absolute path is expected")
		case len(v.Repos) == 0 || len(v.Repos) > maxAllow:
			return fail("environments.secrets."+name, fmt.Sprintf("repos: 1 to %d names of repositories are expected", maxAllow))
		}
	}
	out.Secrets = in.Secrets
	for _, r := range in.Registries {
		if !registryName().MatchString(r) {
			return fail("environments.registries", fmt.Sprintf("%.200q is no HOST[:PORT]", r))
		}
	}
	out.Registries = in.Registries
	if in.MaxAge != "" {
		d, err := time.ParseDuration(in.MaxAge)
		if err != nil || d < time.Minute {
			return fail("environments.max_age", fmt.Sprintf("%.40q is no time of a minute or more, such as \"336h\"", in.MaxAge))
		}
		out.MaxAge = d
	}
	for _, size := range []struct {
		key, text string
		to        *int64
	}{{"max_size", in.MaxSize, &out.MaxSize}, {"max_images", in.MaxImages, &out.MaxImages}} {
		if size.text == "" {
			continue
		}
		n, err := parseSize(size.text)
		if err != nil {
			return fail("environments."+size.key, err.Error())
		}
		*size.to = n
	}
	c.Environments = out
	return nil
}

// parseSize reads a number of bytes, or one with KiB, MiB, GiB or TiB.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGTiB")
	shift, ok := map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n <= 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%.40q is no size such as \"40GiB\"", text)
	}
	return n << shift, nil
}
