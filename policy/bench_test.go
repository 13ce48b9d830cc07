package policy_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/policy"
)

// hostText is a document with n hosts.
func hostText(n int) string {
	var b strings.Builder
	b.WriteString("[egress]\nallow = [\n")
	for i := range n {
		fmt.Fprintf(&b, "\"h%d.zone%d.test\",\n", i, i%97)
	}
	return b.String() + "]\n"
}

// hostCedar is the same hosts as Cedar text, as somebody would write it who has
// nothing but Cedar.
func hostCedar(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "permit (principal, action in [Action::\"resolve\", Action::\"connect\", Action::\"request\"], resource == Host::\"h%d.zone%d.test\") when { action == Action::\"resolve\" || [80, 443].contains(context.port) };\n", i, i%97)
	}
	return b.String()
}

// toolCedar is n policies about tools, each with a condition on an argument.
func toolCedar(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "forbid (principal, action == Action::\"invoke\", resource == Tool::\"s:t%d\") when { resource.hasTag(\"owner\") && resource.getTag(\"owner\") != \"acme\" };\n", i)
	}
	return b.String() + "permit (principal, action == Action::\"invoke\", resource);\n"
}

// requestCedar is n policies that every request meets, so that no index helps.
func requestCedar(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "forbid (principal, action == Action::\"request\", resource) when { context.path like \"/never%d/*\" };\n", i)
	}
	return b.String() + "permit (principal, action in [Action::\"resolve\", Action::\"connect\", Action::\"request\"], resource);\n"
}

// mixedText is a thousand rules as an organisation may have them: hosts, requests,
// tools, files and Cedar text.
func mixedText() string {
	var b strings.Builder
	b.WriteString(hostText(400) + "ask = [\"asked.test\"]\n")
	for i := range 200 {
		fmt.Fprintf(&b, "[[egress.rule]]\nid = \"r%d\"\neffect = \"allow\"\nhosts = [\"*.zone%d.test\"]\nmethods = [\"GET\"]\npaths = [\"/v%d/*\"]\n", i, i%97, i)
	}
	list := func(section, effect, format string, n int) {
		fmt.Fprintf(&b, "[%s]\n%s = [\n", section, effect)
		for i := range n {
			fmt.Fprintf(&b, "\""+format+"\",\n", i)
		}
		b.WriteString("]\n")
	}
	list("tool", "allow", "s:t%d_*", 150)
	list("file", "deny", "write:/work/d%d/**", 50)
	return b.String() + "[cedar]\ntext = '''" + toolCedar(200) + "'''\n"
}

// BenchmarkDecisions times single decisions and reports the median and the 99th of
// a hundred, in microseconds of the clock and of the processor: of ours, and in the same run of cedar-go with all of
// the rules as one set of policies.
func BenchmarkDecisions(b *testing.B) {
	request := func(i int) policy.Query {
		host := fmt.Sprintf("h%d.zone%d.test", i, i%97)
		if i%5 == 4 {
			host = fmt.Sprintf("other%d.test", i) // refused, with a reason
		}
		return policy.Query{Action: policy.HTTP, Host: cofferdam.Host(host), Port: 443, Method: "GET", Path: "/v1/x"}
	}
	tool := func(i int) policy.Query {
		return policy.Query{Action: policy.Invoke, Name: fmt.Sprintf("s:t%d", i), Args: []byte(`{"owner":"acme","repo":"web"}`)}
	}
	mixed := func(i int) policy.Query {
		if i%3 == 0 {
			return tool(i % 150)
		}
		return request(i)
	}
	cedarText := func(text string) string { return "[cedar]\ntext = '''" + text + "'''\n" }
	for _, c := range []struct {
		name, text, plain string
		query             func(int) policy.Query
		n                 int
	}{
		{"rules=1000/mixed", mixedText(), "", mixed, 400},
		{"rules=1000/tools", cedarText(toolCedar(1000)), toolCedar(1000), tool, 1000},
		{"rules=1000/all-meet", cedarText(requestCedar(1000)), requestCedar(1000), request, 1000},
		{"hosts=5000", hostText(5000), hostCedar(5000), request, 5000},
	} {
		d := parsed(b, policy.ProjectName, c.text)
		s := set(b, policy.Grant{Project: d, Repo: "r-1", Model: "m"})
		var queries []policy.Query
		for i := range c.n {
			queries = append(queries, c.query(i))
		}
		b.Run(c.name+"/ours", func(b *testing.B) {
			percentiles(b, func(i int) { s.Decide(queries[i%len(queries)]) })
		})
		if c.plain == "" {
			continue
		}
		list, err := cedar.NewPolicyListFromBytes("plain", []byte(c.plain))
		if err != nil {
			b.Fatal(err)
		}
		all := cedar.NewPolicySet()
		for i, p := range list {
			all.Add(cedar.PolicyID(fmt.Sprint("p", i)), p)
		}
		var requests []cedar.Request
		var entities []cedar.EntityMap
		for _, q := range queries {
			r, e := plainRequest(q)
			requests, entities = append(requests, r), append(entities, e)
		}
		b.Run(c.name+"/cedar", func(b *testing.B) {
			percentiles(b, func(i int) { cedar.Authorize(all, entities[i%len(queries)], requests[i%len(queries)]) })
		})
	}
}

// plainRequest is q for Cedar alone, made before the time is taken.
func plainRequest(q policy.Query) (cedar.Request, cedar.EntityMap) {
	on := cedar.NewEntityUID("Host", cedar.String(q.Host))
	e := cedar.Entity{UID: on}
	if q.Action == policy.Invoke {
		on = cedar.NewEntityUID("Tool", cedar.String(q.Name))
		e = cedar.Entity{UID: on, Tags: cedar.NewRecord(cedar.RecordMap{"owner": cedar.String("acme"), "repo": cedar.String("web")})}
	}
	return cedar.Request{
		Principal: cedar.NewEntityUID("Session", "self"), Action: cedar.NewEntityUID("Action", cedar.String(q.Action)), Resource: on,
		Context: cedar.NewRecord(cedar.RecordMap{"port": cedar.Long(q.Port), "method": cedar.String(q.Method), "path": cedar.String(q.Path)}),
	}, cedar.EntityMap{on: e}
}

// percentiles times each call of do by itself: by the clock, and by the processor
// time of its thread, which other programs of a busy machine are no part of.
func percentiles(b *testing.B, do func(i int)) {
	b.Helper()
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu := func() int64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return t.Nano()
	}
	var took, used []int64
	for i := 0; b.Loop(); i++ {
		begun, spent := time.Now(), cpu()
		do(i)
		used, took = append(used, cpu()-spent), append(took, time.Since(begun).Nanoseconds())
	}
	for name, list := range map[string][]int64{"": took, "cpu-": used} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2])/1000, name+"p50-µs")
		b.ReportMetric(float64(list[(len(list)-1)*99/100])/1000, name+"p99-µs")
	}
}
