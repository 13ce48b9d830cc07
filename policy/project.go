package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"cofferdam"
)

// ProjectPath is where a repository keeps its project file.
const ProjectPath = ".cofferdam/project.toml"

// maxProject bounds the project file, which comes from a repository that
// nobody has to trust.
const maxProject = 64 << 10

// Project is what a repository's own file asks for. It can only narrow what a
// task was given. The format is TOML:
//
//	[egress]
//	allow = ["registry.example.com", "preset:npm"]  # no other host, whatever the task allows
//
//	[limits]               # the smaller of this and the task's own limit counts
//	memory = "2GiB"        # bytes, or a number with KiB, MiB or GiB
//	disk = "4GiB"
//	temp = "512MiB"
//	cpu = 1.5              # processors
//	pids = 256
//	open_files = 1024
//
//	[session]              # the lower of this, the task's and the server's counts
//	idle_timeout = "10m"   # then its box is suspended
//	max_lifetime = "4h"
//
//	[workspace]            # the lower of this and the server's counts
//	keep = "72h"           # after the last session
//
// Every key may be left out and then narrows nothing; allow = [] allows no
// host. An unknown key is an error.
type Project struct {
	Name    string   // of the layer; "": repository
	Narrows bool     // there is an allow list, maybe an empty one
	Allow   []Rule   // its hosts
	Presets []string // its preset:NAME entries
	Limits  cofferdam.Limits
	Rest    cofferdam.Rest
	Keep    time.Duration // of a workspace; 0: as long as the server does
}

// projectFile is the file as TOML has it.
type projectFile struct {
	Egress struct {
		Allow *[]string `toml:"allow"`
	} `toml:"egress"`
	Limits struct {
		Memory    any      `toml:"memory"`
		Disk      any      `toml:"disk"`
		Temp      any      `toml:"temp"`
		CPU       *float64 `toml:"cpu"`
		PIDs      *int64   `toml:"pids"`
		OpenFiles *int64   `toml:"open_files"`
	} `toml:"limits"`
	Session struct {
		Idle     *string `toml:"idle_timeout"`
		Lifetime *string `toml:"max_lifetime"`
	} `toml:"session"`
	Workspace struct {
		Keep *string `toml:"keep"`
	} `toml:"workspace"`
}

// ParseProject reads a project file. An error names the key and its line.
func ParseProject(text []byte) (Project, error) {
	if len(text) > maxProject {
		return Project{}, badProject(fmt.Sprintf("it is larger than %d bytes", maxProject), nil)
	}
	var f projectFile
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Project{}, badProject(tomlReason(err), err)
	}
	if err := checkKeys(text); err != nil {
		return Project{}, badProject(err.Error(), err)
	}
	var p Project
	if f.Egress.Allow != nil {
		p.Narrows = true
		var hosts []string
		for i, entry := range *f.Egress.Allow {
			name, preset := strings.CutPrefix(entry, "preset:")
			switch {
			case preset && name == "":
				return Project{}, badProject(fmt.Sprintf("egress.allow, entry %d: the preset has no name", i+1), nil)
			case preset:
				p.Presets = append(p.Presets, name)
			default:
				hosts = append(hosts, entry)
			}
		}
		var err error
		if p.Allow, err = ParseAllow(hosts, nil); err != nil {
			return Project{}, badProject("egress.allow: "+err.Error(), err)
		}
	}
	var err error
	p.Limits, err = f.limits()
	if err == nil {
		p.Rest, err = f.rest()
	}
	if k := f.Workspace.Keep; k != nil && err == nil {
		if p.Keep, err = time.ParseDuration(*k); err != nil || p.Keep < time.Hour {
			err = fmt.Errorf("workspace.keep: %q is no time of an hour or more, such as 72h", shorten(*k))
		}
	}
	if err != nil {
		return Project{}, badProject(err.Error(), err)
	}
	return p, nil
}

func badProject(reason string, err error) error {
	return &cofferdam.Error{
		Op: "policy.ParseProject", Kind: cofferdam.Invalid, Subject: ProjectPath, Reason: reason, Err: err,
		Hint: "the keys are egress.allow, limits.memory, disk, temp, cpu, pids, open_files, session.idle_timeout, max_lifetime, and workspace.keep",
	}
}

// tomlReason names key and line of a TOML error.
func tomlReason(err error) string {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		first := strict.Errors[0]
		line, _ := first.Position()
		return fmt.Sprintf("line %d: the key %q is unknown", line, shorten(strings.Join(first.Key(), ".")))
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		line, _ := bad.Position()
		key := strings.Join(bad.Key(), ".")
		if strings.Contains(bad.Error(), "cannot decode TOML") { // and into which type of ours, which tells nobody anything
			return fmt.Sprintf("line %d: key %q: wrong type of value: text needs quotes, a number has none, a list has [ ]", line, shorten(key))
		}
		if key != "" {
			return fmt.Sprintf("line %d: the key %q has a wrong value: %s", line, shorten(key), bad)
		}
		return fmt.Sprintf("line %d: %s", line, bad)
	}
	return err.Error()
}

func (f projectFile) limits() (cofferdam.Limits, error) {
	var l cofferdam.Limits
	for _, s := range []struct {
		name string
		in   any
		out  *int64
	}{{"memory", f.Limits.Memory, &l.Memory}, {"disk", f.Limits.Disk, &l.Disk}, {"temp", f.Limits.Temp, &l.Temp}} {
		if s.in == nil {
			continue
		}
		n, err := parseSize(s.in)
		if err != nil {
			return l, fmt.Errorf("limits.%s: %w", s.name, err)
		}
		*s.out = n
	}
	for _, s := range []struct {
		name string
		in   *int64
		out  *int64
	}{{"pids", f.Limits.PIDs, &l.PIDs}, {"open_files", f.Limits.OpenFiles, &l.OpenFiles}} {
		if s.in == nil {
			continue
		}
		if *s.in < 1 {
			return l, fmt.Errorf("limits.%s: %d is not a positive number", s.name, *s.in)
		}
		*s.out = *s.in
	}
	if c := f.Limits.CPU; c != nil {
		if !(*c > 0) || math.IsInf(*c, 0) {
			return l, fmt.Errorf("limits.cpu: %v is not a positive number", *c)
		}
		l.CPU = *c
	}
	return l, nil
}

func (f projectFile) rest() (cofferdam.Rest, error) {
	var r cofferdam.Rest
	for _, s := range []struct {
		name string
		in   *string
		out  *float64
	}{{"idle_timeout", f.Session.Idle, &r.Idle}, {"max_lifetime", f.Session.Lifetime, &r.Lifetime}} {
		if s.in == nil {
			continue
		}
		d, err := time.ParseDuration(*s.in)
		if err != nil || d <= 0 {
			return r, fmt.Errorf("session.%s: %q is no duration such as 90s or 1h30m", s.name, shorten(*s.in))
		}
		*s.out = d.Seconds()
	}
	if why := r.Check(); why != "" {
		return r, fmt.Errorf("session: %s", why)
	}
	return r, nil
}

// parseSize reads bytes: a number, or text such as "2GiB".
func parseSize(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		if v > 0 {
			return v, nil
		}
	case string:
		for _, u := range []struct {
			suffix string
			shift  uint
		}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"", 0}} {
			digits, ok := strings.CutSuffix(v, u.suffix)
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || n < 1 || n > math.MaxInt64>>u.shift {
				break
			}
			return n << u.shift, nil
		}
	}
	return 0, fmt.Errorf(`%q is not a size; write bytes, or text such as "512MiB"`, shorten(fmt.Sprint(v)))
}

// Narrow returns g less everything that p does not name as well. What p names
// and g does not cover is never added; it is listed in Dropped.
func (g Grant) Narrow(p Project) (Grant, error) {
	if !p.Narrows {
		return g, nil
	}
	var kept, dropped []Rule
	add := func(r Rule) {
		if !slices.ContainsFunc(kept, func(o Rule) bool { return o.Pattern == r.Pattern && o.Port == r.Port }) {
			kept = append(kept, r)
		}
	}
	// The closest first: where narrowing makes two rules alike, the one that
	// decided about splicing before goes on to decide.
	given := slices.Clone(g.Allow)
	slices.SortStableFunc(given, moreSpecific)
	keep := func(want Rule) (covered bool) {
		for _, have := range given {
			if r, ok := have.intersect(want); ok {
				covered = true
				add(r)
			}
		}
		return covered
	}
	written := g.written() // which is narrowed by a layer of its own
	layer := Document{Name: cmp.Or(p.Name, "repository"), Allows: []Section{Egress}}
	for _, want := range p.Allow {
		layer.add(want.as(Allow))
		if !keep(want) && !slices.ContainsFunc(written, func(have Rule) bool { _, ok := have.intersect(want); return ok }) {
			dropped = append(dropped, want)
		}
	}
	for _, name := range p.Presets {
		covered := false
		for _, have := range given { // with every rule that is closer than the preset's own
			if have.Origin == "preset:"+name && keep(have) {
				covered = true
				layer.add(have.as(Allow))
			}
		}
		for _, have := range written {
			if have.Origin == "preset:"+name {
				covered = true
				layer.add(have.as(Allow))
			}
		}
		if !covered {
			dropped = append(dropped, Rule{Pattern: "preset:" + name, Origin: "preset:" + name})
		}
	}
	if len(kept) > maxRules {
		return Grant{}, badProject(fmt.Sprintf("together with the task's list it makes more than %d rules", maxRules), nil)
	}
	g.Read = slices.Clone(g.Read)
	for _, r := range g.Allow {
		if !slices.ContainsFunc(kept, r.same) {
			g.Read = read(g.Read, r)
		}
	}
	g.Allow, g.Dropped = number(kept), append(slices.Clone(g.Dropped), dropped...)
	g.Narrowing = append(slices.Clone(g.Narrowing), layer) // also over Cedar text, and over what is only logged
	return g, nil
}

// as returns r as a rule of another document, without its id and with this effect.
func (r Rule) as(e Effect) Rule {
	r.ID, r.Section, r.Effect, r.Mode, r.Splice, r.Credentials = "", Egress, e, "", false, false
	return r
}

// intersect returns the rule for what both allow. Whether it splices, or lets the
// box's credentials pass, is r's to say.
func (r Rule) intersect(o Rule) (Rule, bool) {
	out := Rule{Origin: r.Origin, Splice: r.Splice, Credentials: r.Credentials, Methods: r.Methods, Paths: r.Paths}
	switch {
	case r.covers(o):
		out.Pattern = o.Pattern
	case o.covers(r):
		out.Pattern = r.Pattern
	default:
		return Rule{}, false
	}
	switch {
	case r.Port == o.Port, o.Port == 0 && o.allowsPort(r.Port):
		out.Port = r.Port
	case r.Port == 0 && r.allowsPort(o.Port):
		out.Port = o.Port
	default:
		return Rule{}, false
	}
	return out, true
}

// covers says whether every name that o matches is matched by r.
func (r Rule) covers(o Rule) bool {
	if r.section() != o.section() || r.Action != "" && r.Action != o.Action {
		return false
	}
	if r.section() != Egress {
		return coversName(r.section(), r.Pattern, o.Pattern)
	}
	if r.Pattern == o.Pattern {
		return true
	}
	suffix, wild := strings.CutPrefix(r.Pattern, "*")
	return wild && strings.HasSuffix(o.Pattern, suffix)
}

// Covers says whether r matches all that o matches, conditions included. It may
// say no where the answer is yes, never the other way round.
func (r Rule) Covers(o Rule) bool { return r.covers(o) && r.opens(o) }

// opens says whether everything that o opens of a host, r opens too. Where r is
// about some requests alone, o has to be about no others.
func (r Rule) opens(o Rule) bool {
	ports := r.Port == o.Port || r.Port == 0 && o.Port != 0 && r.allowsPort(o.Port)
	if r.Port == 0 && r.effect() == Deny { // all ports, and the name
		ports = true
	} else if o.Port == 0 && o.effect() == Deny {
		ports = false
	}
	methods := len(r.Methods) == 0 || len(o.Methods) > 0 && !slices.ContainsFunc(o.Methods, func(m string) bool { return !slices.Contains(r.Methods, m) })
	paths := len(r.Paths) == 0 || len(o.Paths) > 0 && !slices.ContainsFunc(o.Paths, func(p string) bool {
		return !slices.ContainsFunc(r.Paths, func(w string) bool { return coversPath(w, p) })
	})
	unseen := r.Splice || !o.Splice || r.effect() == Deny || r.effect() == Ask
	own := r.Credentials || !o.Credentials || r.effect() == Deny || r.effect() == Ask
	return ports && methods && paths && unseen && own
}

// coversPath says whether wide matches every path that narrow matches: never yes
// where the answer is no.
func coversPath(wide, narrow string) bool {
	head, open := strings.CutSuffix(wide, "*")
	if wide == narrow {
		return true
	}
	return open && !strings.Contains(head, "*") && strings.HasPrefix(narrow, head)
}

// NarrowLimits returns the smaller of each of l and the project's limits.
//
// Preconditions: the defaults are filled into l; a zero there would be taken
// for no limit at all.
func (p Project) NarrowLimits(l cofferdam.Limits) cofferdam.Limits {
	return cofferdam.Limits{
		Memory: smaller(l.Memory, p.Limits.Memory), Disk: smaller(l.Disk, p.Limits.Disk),
		Temp: smaller(l.Temp, p.Limits.Temp), CPU: smaller(l.CPU, p.Limits.CPU),
		PIDs: smaller(l.PIDs, p.Limits.PIDs), OpenFiles: smaller(l.OpenFiles, p.Limits.OpenFiles),
	}
}

// smaller returns the smaller limit; zero is none.
func smaller[N int64 | float64](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
