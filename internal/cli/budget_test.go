package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam"
)

func TestBudgetFlags(t *testing.T) {
	b := newBench(t)
	b.shop()
	b.good("task", "create", "x", "--command", "true", "--keep", "true", "--max-tokens", "5000", "--max-cost", "0.50", "--max-calls", "7")
	var task cofferdam.Task
	if err := json.Unmarshal([]byte(b.good("task", "view", "t-2", "--json")), &task); err != nil {
		t.Fatal(err)
	}
	if want := (cofferdam.Budget{Tokens: 5000, Cost: 500_000, Calls: 7}); task.Request.Budget == nil || *task.Request.Budget != want {
		t.Errorf("the task may spend %+v, want %+v", task.Request.Budget, want)
	}
	if out := b.good("task", "view", "t-2"); !strings.Contains(out, "5000 tokens, $0.50, 7 model calls") {
		t.Errorf("it is shown as\n%s", out)
	}
	if out := b.good("task", "view", "t-1"); strings.Contains(out, "budget") {
		t.Errorf("a task without limits shows one:\n%s", out)
	}
	b.good("task", "create", "x", "--command", "true", "--keep", "true", "--max-time", "90s", "--max-tool-time", "1m", "--max-egress", "20MiB", "--max-approvals", "3")
	if out := b.good("budget", "view", "t-3"); !strings.Contains(out, "1m30s of the agent") || !strings.Contains(out, "20971520 bytes sent") || !strings.Contains(out, "3 questions to people") {
		t.Errorf("the budget is shown as\n%s", out)
	}
	for _, bad := range [][]string{
		{"--max-tokens", "0"},
		{"--max-tokens", "-5"},
		{"--max-tokens", "999"},
		{"--max-tokens", "many"},
		{"--max-tokens", "1000000001"},
		{"--max-tokens", "99999999999999999999"},
		{"--max-cost", "0"},
		{"--max-cost", ""},
		{"--max-cost", "0.001"},
		{"--max-cost", "101"},
		{"--max-cost", "-1"},
		{"--max-cost", "1,50"},
		{"--max-cost", "NaN"},
		{"--max-calls", "0"},
		{"--max-calls", "501"},
		{"--max-calls", "1.5"},
		{"--max-time", "0s"},
		{"--max-time", "999ms"},
		{"--max-time", "90"},
		{"--max-time", "337h"},
		{"--max-tool-time", "-1h"},
		{"--max-egress", "0"},
		{"--max-egress", "2TiB"},
		{"--max-egress", "all"},
		{"--max-approvals", "51"},
		{"--max-approvals", "-1"},
	} {
		code, _, errs := b.run(append([]string{"task", "create", "x", "--command", "true", "--keep", "true"}, bad...)...)
		if code != 2 || !strings.HasPrefix(errs, "cofferdam: ") || !strings.Contains(errs, "\nhint: ") {
			t.Errorf("%v: exit %d\n%s", bad, code, errs)
		}
	}
}

func TestSpentInWords(t *testing.T) {
	for want, u := range map[string]cofferdam.Usage{
		"0 (0 tokens in, 0 out)":                                    {},
		"2 (30 tokens in, 4 out), $0.0125":                          {ModelCalls: 2, InputTokens: 30, OutputTokens: 4, Cost: 12_500},
		"1 (3 tokens in, 4 out), without a price":                   {ModelCalls: 1, InputTokens: 3, OutputTokens: 4, Unpriced: 1},
		"3 (9 tokens in, 9 out), $0.10 and 2 calls without a price": {ModelCalls: 3, InputTokens: 9, OutputTokens: 9, Cost: 100_000, Unpriced: 2},
	} {
		if got := spent(u); got != want {
			t.Errorf("%+v: %q, want %q", u, got, want)
		}
	}
	var sum cofferdam.Usage
	seq := uint64(1)
	outcome := map[string]string{"input_tokens": "30", "output_tokens": "4", "cost_microdollars": "12"}
	addCall(&sum, cofferdam.Event{Kind: cofferdam.EventModelCall, Fields: map[string]string{"reserved_tokens": "99"}})
	addCall(&sum, cofferdam.Event{Kind: cofferdam.EventModelCall, Of: &seq, Fields: outcome})
	addCall(&sum, cofferdam.Event{Kind: cofferdam.EventModelCall, Of: &seq, Fields: map[string]string{"input_tokens": "x", "unpriced": "true"}})
	addCall(&sum, cofferdam.Event{Kind: cofferdam.EventAgentMessage, Of: &seq, Fields: outcome})
	if want := (cofferdam.Usage{ModelCalls: 2, InputTokens: 30, OutputTokens: 4, Cost: 12, Unpriced: 1}); sum != want {
		t.Errorf("followed: %+v, want %+v", sum, want)
	}
}
