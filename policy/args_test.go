package policy

import (
	"fmt"
	"strings"
	"testing"

	"cofferdam"
)

// Arguments of a tool are seen whole or refused: what two readers take for two
// things, and what is beyond a bound.
func TestArgumentsAreSeenWhole(t *testing.T) {
	project := doc(t, ProjectName, "[tool]\nallow = [\"s:**\"]\n[cedar]\ntext = '''forbid (principal, action == Action::\"invoke\", resource) when { resource.hasTag(\"a.b\") && resource.getTag(\"a.b\") != \"1\" };'''\n")
	s := mustCompile(t, Grant{Project: &project})
	wide := make([]string, maxTags)
	for i := range wide {
		wide[i] = fmt.Sprintf("%d", i)
	}
	for name, c := range map[string]struct {
		args string
		want string // the rule that refuses; "": none
	}{
		"none":          {"", ""},
		"plain":         {`{"a":{"b":1},"c":[1,{"d":null}],"e":true}`, ""},
		"forbidden":     {`{"a":{"b":2}}`, "project-1"},
		"name of dots":  {`{"a.b":2}`, "project-1"},
		"two of a name": {`{"a":{"b":1},"a.b":1}`, BadArgs},
		"twice":         {`{"a":{"b":2,"b":1}}`, BadArgs},
		"twice, spelt":  {`{"a":{"b":2,"\\u0062":1}}`, BadArgs},
		"no name":       {`{"":{"a":{"b":1}}}`, BadArgs},
		"a list":        {`[1]`, BadArgs},
		"text after it": {`{} {"a":{"b":2}}`, BadArgs},
		"brace after":   {`{}}`, BadArgs},
		"unfinished":    {`{"a":{"b":1}`, BadArgs},
		"a comma more":  {`{"a":1,}`, BadArgs},
		"too many":      {`{"x":[` + strings.Join(wide, ",") + `]}`, BadArgs},
		"too deep":      {strings.Repeat(`{"x":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1), BadArgs},
		"deep":          {strings.Repeat(`{"x":`, maxDepth) + "1" + strings.Repeat("}", maxDepth), ""},
		"too large":     {`{"x":"` + strings.Repeat("x", maxArgs) + `"}`, BadArgs},
	} {
		d := s.Decide(Query{Action: Invoke, Name: "s:t", Args: []byte(strings.ReplaceAll(c.args, `\\u`, `\u`))})
		if (d.Verdict == cofferdam.Refused) != (c.want != "") || c.want != "" && d.Rule != c.want {
			t.Errorf("%s: %+v, not %q", name, d, c.want)
		}
		if name == "too large" && !strings.Contains(d.Reason, "in several calls, or by a command") {
			t.Errorf("what is too large is refused without a next step: %s", d.Reason)
		}
	}
}
