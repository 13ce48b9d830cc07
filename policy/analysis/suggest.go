package analysis

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/policy"
)

// Bounds of what is suggested: more than a person reads is no suggestion.
const (
	maxSuggested = 256 // hosts, and names of each section
	maxPaths     = 16  // of a host that are told apart, and methods
	maxFolders   = 2   // of a path that a rule keeps
)

// Suggestion is the smallest document that allows what was done, whether it was
// let through or not. What only a person should open, pushes and merges, is not
// in it. It says what was done, not what should be. The zero value is ready.
type Suggestion struct {
	hosts map[string]*observed
	names map[policy.Section]map[string]bool
	left  int // names that were left out
}

// observed is what was done at one host and port.
type observed struct {
	methods, paths map[string]bool
	splice         bool
	credential     bool
}

// Add learns from events.
func (s *Suggestion) Add(events []cofferdam.Event) {
	if s.hosts == nil {
		s.hosts, s.names = map[string]*observed{}, map[policy.Section]map[string]bool{}
	}
	for _, e := range events {
		q, ok := question(e)
		if !ok {
			continue
		}
		switch q.Action {
		case policy.HTTP, policy.Connect:
			s.see(q)
		case policy.Invoke:
			s.name(policy.Tools, q.Name)
		case policy.Use:
			s.name(policy.Secret, q.Name)
		case policy.Expose:
			s.name(policy.Ports, q.Name)
		}
	}
}

func (s *Suggestion) name(section policy.Section, name string) {
	known := s.names[section]
	if known == nil {
		known = map[string]bool{}
		s.names[section] = known
	}
	if _, err := policy.ParseDocument("project", []byte(fmt.Sprintf("[%s]\nallow = [%q]\n", section, name)), nil); err != nil {
		return // nobody could write it
	}
	if !known[name] && len(known) == maxSuggested {
		s.left++
		return
	}
	known[name] = true
}

func (s *Suggestion) see(q policy.Query) {
	if policy.CheckHost(q.Host) != nil {
		return
	}
	host := string(q.Host)
	if q.Port != 0 && !policy.WebPort(q.Port) {
		host = fmt.Sprintf("%s:%d", host, q.Port)
	}
	o := s.hosts[host]
	if o == nil {
		if len(s.hosts) == maxSuggested {
			s.left++
			return
		}
		o = &observed{methods: map[string]bool{}, paths: map[string]bool{}}
		s.hosts[host] = o
	}
	o.splice, o.credential = o.splice || q.Splice, o.credential || q.Credential
	method := strings.ToUpper(q.Method)
	if q.Action != policy.HTTP || !policy.CheckMethod(method) {
		return
	}
	if len(o.methods) <= maxPaths {
		o.methods[method] = true
	}
	if len(o.paths) <= maxPaths {
		o.paths[folder(q.Path)] = true
	}
}

// Text returns the document.
func (s *Suggestion) Text() string {
	var b strings.Builder
	b.WriteString("# What was done, as rules. Read each before you take it.\n")
	if s.left > 0 {
		fmt.Fprintf(&b, "# %d acts at other hosts and names are left out: there are more than %d.\n", s.left, maxSuggested)
	}
	var unseen []string
	for _, host := range sorted(s.hosts) {
		if s.hosts[host].splice {
			unseen = append(unseen, "splice:"+host)
		}
	}
	if len(unseen) > 0 {
		fmt.Fprintf(&b, "\n[egress]\nallow = [%s]\n", quoted(unseen))
	}
	for i, host := range sorted(s.hosts) {
		if o := s.hosts[host]; !o.splice && len(o.methods) > 0 {
			if o.credential {
				host = policy.CredentialsPrefix + host
			}
			fmt.Fprintf(&b, "\n[[egress.rule]]\nid = \"seen-%d\"\neffect = \"allow\"\nhosts = [%q]\n", i+1, host)
			if len(o.methods) <= maxPaths { // more are all that there are
				fmt.Fprintf(&b, "methods = [%s]\n", quoted(sorted(o.methods)))
			}
			fmt.Fprintf(&b, "paths = [%s]\n", quoted(few(o.paths)))
		}
	}
	for _, section := range []policy.Section{policy.Ports, policy.Secret, policy.Tools} {
		if names := s.names[section]; len(names) > 0 {
			fmt.Fprintf(&b, "\n[%s]\nallow = [%s]\n", section, quoted(sorted(names)))
		}
	}
	return b.String()
}

// few returns the different paths, or all of the host if there are too many for
// a person to read.
func few(paths map[string]bool) []string {
	if len(paths) > maxPaths || paths["/*"] {
		return []string{"/*"}
	}
	return sorted(paths)
}

// folder is the pattern of a path's first folders; what can be read in more than
// one way gives the root alone.
func folder(p string) string {
	if strings.ContainsAny(p, "%;\\*") || path.Clean("/"+p) != strings.TrimSuffix(p, "/") && p != "/" {
		return "/*"
	}
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	if len(parts) <= maxFolders {
		return p
	}
	return "/" + strings.Join(parts[:maxFolders], "/") + "/*"
}

func quoted(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ", ")
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
