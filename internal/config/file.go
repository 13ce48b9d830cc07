package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"cofferdam"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// operatorFile is cofferdam.toml as it was read.
//
//	state = "/var/lib/cofferdam"        # every setting of Settings that is no debug knob
//	policy = "/etc/cofferdam/extra.cedar"
//	[egress]
//	allow = ["preset:npm", "api.example.com:443"]
//	allow_addresses = ["10.0.0.7:443"]
//	resolver = "10.0.0.53:53"           # instead of the machine's own
//	hosts = { "db.example.com" = "10.0.0.7" }
//	[presets]
//	internal = ["packages.example.com"]
//	[budget]                            # of a task that names none; see budget.go
//	cost = 5.00
//	[agents]
//	dir = "/etc/cofferdam/agents"       # more agents, one file each; see package agent
//	[environments]                      # what boxes are made from; see environments.go
//	registries = ["registry.example.com"]
//	[workspaces]                        # how long they are kept; see workspaces.go
//	keep = "336h"
//	[sign_in]                           # people, at a provider of OpenID Connect
//	issuer = "https://id.example.com"
//	client = "cofferdam"                # of a public client
//	passkey_origin = "https://cofferdam.example.com" # where browsers see this server
//	[[price]]
//	model = "my-model-*"
//
// TOML has no null; a bare word where a value should be is a syntax error.
type operatorFile struct {
	path string
	text map[string]string
	has  map[string]bool
	body fileBody
}

type fileBody struct {
	Policy *string `toml:"policy"`
	Egress struct {
		Allow          []string          `toml:"allow"`
		AllowAddresses []string          `toml:"allow_addresses"`
		Hosts          map[string]string `toml:"hosts"`
		Resolver       *string           `toml:"resolver"`
	} `toml:"egress"`
	Agents struct {
		Dir string `toml:"dir"`
	} `toml:"agents"`
	Presets      map[string][]string     `toml:"presets"`
	Budget       fileBudget              `toml:"budget"`
	Environments fileEnvironments        `toml:"environments"`
	Workspaces   fileWorkspaces          `toml:"workspaces"`
	SignIn       SignIn                  `toml:"sign_in"`
	Approvals    fileApprovals           `toml:"approvals"`
	Price        []cofferdam.ListedPrice `toml:"price"`
}

// readFile reads the operator file: the one that was named, which must exist,
// or the default one, which may be missing.
func readFile(flagged string, getenv func(string) string) (operatorFile, error) {
	path, named := flagged, flagged != ""
	if !named {
		path = getenv("COFFERDAM_CONFIG")
		named = path != ""
	}
	if !named {
		path = DefaultFile
	}
	data, missing, err := readBounded(path)
	if err != nil {
		return operatorFile{}, invalid("file "+path, plain(err), "make it readable for the server, or remove it")
	}
	if missing {
		if named {
			return operatorFile{}, invalid("file "+path, "there is none", "write it, or leave --config and COFFERDAM_CONFIG away")
		}
		return operatorFile{}, nil
	}
	f, err := parseFile(path, data)
	if err != nil {
		return operatorFile{}, invalid("file "+path, err.Error(), "correct each line that is named")
	}
	return f, nil
}

func parseFile(path string, data []byte) (operatorFile, error) {
	f := operatorFile{path: path, text: map[string]string{}, has: map[string]bool{}}
	var all map[string]any
	if err := toml.Unmarshal(data, &all); err != nil {
		return f, at(err)
	}
	lines := keyLines(data)
	var faults []fault
	for _, s := range Settings() {
		v, ok := all[s.Name]
		if !ok || s.Hidden {
			continue
		}
		f.has[s.Name] = true
		_, number := v.(int64)
		switch text, isText := v.(string); {
		case isText:
			f.text[s.Name] = text
		case v == true, v == false, number && s.Number:
			f.text[s.Name] = fmt.Sprint(v)
		default:
			faults = append(faults, fault{lines[s.Name], fmt.Sprintf("key %q: wrong type of value: text needs quotes, a number has none, a list has [ ]", s.Name)})
		}
		delete(all, s.Name)
	}
	more, err := readTables(all, lines, func() any { f.body = fileBody{}; return &f.body })
	if err != nil {
		return f, err
	}
	return f, told(append(faults, more...))
}

// maxFaults is how many faults of a file are named at once.
const maxFaults = 16

// fault is what is wrong on one line.
type fault struct {
	line   int
	reason string
}

// told names all faults, in the order of their lines.
func told(faults []fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return a.line - b.line })
	var all []string
	for i, f := range faults {
		if i == maxFaults {
			all = append(all, fmt.Sprintf("and %d more", len(faults)-i))
			break
		}
		all = append(all, fmt.Sprintf("line %d: %s", f.line, f.reason))
	}
	return errors.New(strings.Join(all, "; "))
}

// readTables reads tables into what fresh returns, and names every unknown key and
// every value of a wrong type. One of those hides the rest from the decoder, so it
// is taken out of the tables, and they are read again.
func readTables(all map[string]any, lines map[string]int, fresh func() any) ([]fault, error) {
	var faults []fault
	for range maxFaults {
		text, err := toml.Marshal(all)
		if err != nil {
			return nil, err
		}
		dec := toml.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		err = dec.Decode(fresh())
		var strict *toml.StrictMissingError
		var wrong *toml.DecodeError
		switch {
		case err == nil:
			return faults, nil
		case errors.As(err, &strict):
			for _, e := range strict.Errors {
				key := strings.Join(e.Key(), ".")
				faults = append(faults, fault{lines[key], fmt.Sprintf("unknown key %q", key)})
			}
			return faults, nil
		case errors.As(err, &wrong) && len(wrong.Key()) > 0:
			key := strings.Join(wrong.Key(), ".")
			faults = append(faults, fault{lines[key], fmt.Sprintf("key %q: wrong type of value: text needs quotes, a number has none, a list has [ ]", key)})
			forget(all, wrong.Key())
		default:
			return nil, err
		}
	}
	return faults, nil
}

// forget takes a key away, or, if it is in one of a list of tables, the list.
func forget(all map[string]any, key []string) {
	for _, name := range key[:len(key)-1] {
		below, ok := all[name].(map[string]any)
		if !ok {
			delete(all, name)
			return
		}
		all = below
	}
	delete(all, key[len(key)-1])
}

func at(err error) error {
	var de *toml.DecodeError
	if errors.As(err, &de) {
		row, column := de.Position()
		return fmt.Errorf("line %d, column %d: %s", row, column, strings.TrimPrefix(de.Error(), "toml: "))
	}
	return err
}

// keyLines maps every key, dotted, to its line; a table that is only named by one below
// it is where that is named first.
func keyLines(data []byte) map[string]int {
	lines := map[string]int{}
	found := func(key []string, line int) {
		for i := 1; i < len(key); i++ {
			if above := strings.Join(key[:i], "."); lines[above] == 0 {
				lines[above] = line
			}
		}
		lines[strings.Join(key, ".")] = line
	}
	var p unstable.Parser
	p.Reset(data)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		var key []string
		line := 0
		for it := e.Key(); it.Next(); {
			n := it.Node()
			key = append(key, string(n.Data))
			if line == 0 {
				line = p.Shape(n.Raw).Start.Line
			}
		}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = key
			found(key, line)
		case unstable.KeyValue:
			found(append(slices.Clone(table), key...), line)
		}
	}
	return lines
}

var presetName = pattern(`^[a-z][a-z0-9-]{0,31}$`)

// hintFor is the next step after a value of key was refused.
func hintFor(key string) string {
	table, _, _ := strings.Cut(key, ".")
	switch table {
	case "budget":
		return "correct it, or leave it out for no limit; docs/models.md has an example"
	case "price":
		return "docs/models.md has an example, under Budgets and prices"
	case "environments":
		return "docs/environments.md has an example, under Images"
	case "workspaces":
		return "docs/workspaces.md has an example, under Settings"
	case "agents", "policy":
		return "give the whole path of one that is there, without . and .."
	default:
		return "correct it, or leave it out; an empty list [] allows nothing"
	}
}

// fill takes over what only the file can say, and returns what is wrong in each of
// its tables.
func (f operatorFile) fill(c *Config) (faults []*cofferdam.Error) {
	fail := func(key, reason string) error {
		fault := invalid("file "+f.path, fmt.Sprintf("key %q: %s", key, reason), hintFor(key))
		faults = append(faults, fault)
		return fault
	}
	for _, part := range []func(*Config, func(key, reason string) error) error{
		f.fillAllow, f.fillAddresses, f.fillNames, f.fillAgents, f.fillBudget, f.fillApprovals, f.fillSignIn, f.fillEnvironments, f.fillWorkspaces, f.fillPresets, f.fillPolicy,
	} {
		_ = part(c, fail) // each fault is among faults
	}
	return faults
}

// fillAllow takes over which hosts tasks may reach.
func (f operatorFile) fillAllow(c *Config, fail func(key, reason string) error) error {
	if len(f.body.Egress.Allow) > maxAllow {
		return fail("egress", fmt.Sprintf("more than %d entries", maxAllow))
	}
	for _, a := range f.body.Egress.Allow {
		if strings.TrimSpace(a) != a || a == "" {
			return fail("egress.allow", fmt.Sprintf("%q is no host", a))
		}
	}
	c.Allow = f.body.Egress.Allow
	return nil
}

// fillAddresses takes over which reserved addresses may be dialled.
func (f operatorFile) fillAddresses(c *Config, fail func(key, reason string) error) error {
	if len(f.body.Egress.AllowAddresses) > maxAllow {
		return fail("egress", fmt.Sprintf("more than %d entries", maxAllow))
	}
	for _, a := range f.body.Egress.AllowAddresses {
		addr, err := ParseAddress(a)
		if err != nil {
			return fail("egress.allow_addresses", err.Error())
		}
		c.AllowAddresses = append(c.AllowAddresses, addr)
	}
	return nil
}

// fillAgents takes over where more agents are described.
func (f operatorFile) fillAgents(c *Config, fail func(key, reason string) error) error {
	if c.Agents = f.body.Agents.Dir; c.Agents != "" && (!filepath.IsAbs(c.Agents) || filepath.Clean(c.Agents) != c.Agents) {
		return fail("agents.dir", fmt.Sprintf("%q is not a clean absolute path", c.Agents))
	}
	return nil
}

// fillSignIn takes over where people may sign in besides here.
func (f operatorFile) fillSignIn(c *Config, fail func(key, reason string) error) error {
	in := f.body.SignIn
	if in == (SignIn{}) {
		return nil
	}
	if in.PasskeyOrigin != "" {
		if why := checkOrigin(in.PasskeyOrigin); why != "" {
			return fail("sign_in.passkey_origin", why)
		}
	}
	if (in.Issuer != "" || in.Client != "") && (!strings.HasPrefix(in.Issuer, "https://") && !strings.HasPrefix(in.Issuer, "http://127.0.0.1:") || in.Client == "") {
		return fail("sign_in", "it needs an issuer, which is an https address, and the id of a client")
	}
	c.SignIn = in
	return nil
}

// fillPresets takes over names for lists of hosts.
func (f operatorFile) fillPresets(c *Config, fail func(key, reason string) error) error {
	if len(f.body.Presets) > maxAllow {
		return fail("presets", fmt.Sprintf("more than %d entries", maxAllow))
	}
	for name, hosts := range f.body.Presets {
		if !presetName().MatchString(name) {
			return fail("presets", fmt.Sprintf("%q is no preset name: lower-case letters, digits and hyphens", name))
		}
		if slices.Contains(hosts, "") || len(hosts) > maxAllow {
			return fail("presets."+name, "holds an empty host, or too many")
		}
	}
	c.Presets = f.body.Presets
	return nil
}

// fillPolicy reads the operator's own policy.
func (f operatorFile) fillPolicy(c *Config, fail func(key, reason string) error) error {
	if f.body.Policy == nil {
		return nil
	}
	if !filepath.IsAbs(*f.body.Policy) {
		return fail("policy", fmt.Sprintf("%q is not an absolute path", *f.body.Policy))
	}
	data, missing, err := readBounded(*f.body.Policy)
	if missing {
		return fail("policy", *f.body.Policy+": there is no such file")
	}
	if err != nil {
		return fail("policy", *f.body.Policy+": "+plain(err))
	}
	c.Policy = string(data)
	return nil
}

// fillNames takes over how the gateways turn names into addresses.
func (f operatorFile) fillNames(c *Config, fail func(key, reason string) error) error {
	if r := f.body.Egress.Resolver; r != nil {
		ap, err := netip.ParseAddrPort(*r)
		if err != nil || ap.Port() == 0 {
			return fail("egress.resolver", fmt.Sprintf("%q is no ADDRESS:PORT", *r))
		}
		c.Resolver = ap
	}
	if len(f.body.Egress.Hosts) > maxAllow {
		return fail("egress.hosts", fmt.Sprintf("more than %d entries", maxAllow))
	}
	for name, address := range f.body.Egress.Hosts {
		a, err := netip.ParseAddr(address)
		if err != nil || a.Zone() != "" {
			return fail("egress.hosts", fmt.Sprintf("%q of %q is no address", address, name))
		}
		if c.Hosts == nil {
			c.Hosts = map[cofferdam.Host]netip.Addr{}
		}
		c.Hosts[cofferdam.ParseHost(name)] = a
	}
	return nil
}

// ParseAddress reads ADDRESS or ADDRESS:PORT, the forms of allow_addresses.
// Names, prefixes, zones and port 0 are refused: only that very address counts.
func ParseAddress(s string) (AddrAndPort, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return AddrAndPort{Addr: a.Unmap()}, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 && ap.Addr().Zone() == "" {
		return AddrAndPort{Addr: ap.Addr().Unmap(), Port: ap.Port()}, nil
	}
	return AddrAndPort{}, fmt.Errorf("%q is no ADDRESS or ADDRESS:PORT", s)
}
