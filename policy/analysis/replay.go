package analysis

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/policy"
)

// Replay is what a policy makes of old decisions.
type Replay struct {
	Schema     string       `json:"schema"` // cofferdam/policy-replay/v1
	Same       int          `json:"same"`
	Unknown    int          `json:"unknown"` // decisions whose question is not on record whole
	Changes    []Difference `json:"changes"`
	MoreNotSet int          `json:"more,omitempty"` // changes beyond MaxChanges
}

// MaxChanges bounds what is listed of a replay.
const MaxChanges = 10_000

// Difference is one decision that would be another.
type Difference struct {
	Session  cofferdam.SessionID `json:"session"`
	Seq      uint64              `json:"seq"`
	Resource string              `json:"resource"`
	Was      cofferdam.Verdict   `json:"was"`
	WasRule  string              `json:"was_rule"`
	Now      cofferdam.Verdict   `json:"now"`
	NowRule  string              `json:"now_rule"`
}

// Add judges the events of one page by s. Rules that a gateway applies by itself
// stay as they are.
func (r *Replay) Add(events []cofferdam.Event, s *policy.Set) {
	r.Schema = "cofferdam/policy-replay/v1"
	for _, e := range events {
		if e.Verdict == "" {
			continue
		}
		q, ok := question(e)
		if !ok {
			r.Unknown++
			continue
		}
		d := s.Decide(q)
		switch {
		case d.Verdict == e.Verdict:
			r.Same++
		case len(r.Changes) == MaxChanges:
			r.MoreNotSet++
		default:
			r.Changes = append(r.Changes, Difference{Session: e.Session, Seq: e.Seq, Resource: e.Resource, Was: e.Verdict, WasRule: e.Rule, Now: d.Verdict, NowRule: d.Rule})
		}
	}
}

// question reads what policy was asked from a decision's event.
func question(e cofferdam.Event) (policy.Query, bool) {
	var q policy.Query
	text, ok := e.Fields[cofferdam.FieldQuery]
	if !ok || strings.Contains(text, "[redacted") {
		return q, false
	}
	return q, json.Unmarshal([]byte(text), &q) == nil && q.Action != ""
}

// observed is what a session did at one host and port.
type observed struct {
	host    string
	methods []string
	paths   []string
	splice  bool
}

// Suggest writes the smallest document that allows what the events show, whether
// it was let through or not. What only a person should open, pushes and merges,
// is not in it. The text is a proposal: it says what was done, not what should be.
func Suggest(events []cofferdam.Event) string {
	hosts := map[string]*observed{}
	names := map[string][]string{}
	for _, e := range events {
		q, ok := question(e)
		if !ok {
			continue
		}
		switch q.Action {
		case policy.HTTP, policy.Connect:
			see(hosts, q)
		case policy.Invoke:
			names["tool"] = append(names["tool"], q.Name)
		case policy.Use:
			names["secret"] = append(names["secret"], q.Name)
		case policy.Expose:
			names["port"] = append(names["port"], q.Name)
		}
	}
	var b strings.Builder
	b.WriteString("# What was done, as rules. Read each before you take it.\n")
	var unseen []string
	for _, key := range sorted(hosts) {
		if o := hosts[key]; o.splice {
			unseen = append(unseen, "splice:"+o.host)
		}
	}
	if len(unseen) > 0 {
		fmt.Fprintf(&b, "\n[egress]\nallow = [%s]\n", quoted(unseen))
	}
	for i, key := range sorted(hosts) {
		if o := hosts[key]; !o.splice && len(o.methods) > 0 {
			fmt.Fprintf(&b, "\n[[egress.rule]]\nid = \"seen-%d\"\neffect = \"allow\"\nhosts = [%q]\nmethods = [%s]\npaths = [%s]\n", i+1, o.host, quoted(o.methods), quoted(few(o.paths)))
		}
	}
	for _, section := range sorted(names) {
		fmt.Fprintf(&b, "\n[%s]\nallow = [%s]\n", section, quoted(names[section]))
	}
	return b.String()
}

// maxPaths is how many paths of a host are told apart.
const maxPaths = 16

// few returns the different paths, or all of the host if there are too many for
// a person to read.
func few(paths []string) []string {
	slices.Sort(paths)
	if paths = slices.Compact(paths); len(paths) > maxPaths || slices.Contains(paths, "/*") {
		return []string{"/*"}
	}
	return paths
}

func see(hosts map[string]*observed, q policy.Query) {
	if policy.CheckHost(q.Host) != nil {
		return
	}
	host := string(q.Host)
	if q.Port != 0 && q.Port != 80 && q.Port != 443 {
		host = fmt.Sprintf("%s:%d", host, q.Port)
	}
	o := hosts[host]
	if o == nil {
		o = &observed{host: host}
		hosts[host] = o
	}
	o.splice = o.splice || q.Splice
	if q.Action == policy.HTTP && policy.CheckMethod(strings.ToUpper(q.Method)) {
		o.methods = append(o.methods, strings.ToUpper(q.Method))
		o.paths = append(o.paths, folder(q.Path))
	}
}

// maxFolders is how many folders of a path a suggested rule keeps.
const maxFolders = 2

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
	slices.Sort(list)
	var out []string
	for _, s := range slices.Compact(list) {
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
