package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam"
)

func TestSend(t *testing.T) {
	b := newBench(t)
	v := b.shop()
	b.m.Set(v.ID, func(t *cofferdam.Task) { t.Request.Agent, t.State = "claude", cofferdam.Running })
	if out := b.good("task", "send", "t-1", "leave the API as it is"); out != "1\n" {
		t.Errorf("prints %q", out)
	}
	b.in = strings.NewReader("from a file\n")
	var m cofferdam.TaskMessage
	if err := json.Unmarshal([]byte(b.good("task", "send", "t-1", "-f", "-", "--json")), &m); err != nil || m.Number != 2 || m.Text != "from a file\n" {
		t.Errorf("%+v %v", m, err)
	}
	b.m.Set(v.ID, func(t *cofferdam.Task) { t.Request.Agent = "command" })
	if code, out, errs := b.run("task", "send", "t-1", "x"); code != 1 || out != "" || !twoLines(errs) || !strings.Contains(errs, "command") {
		t.Errorf("an agent that cannot be told anything: exit %d %s%s", code, out, errs)
	}
	b.m.Set(v.ID, func(t *cofferdam.Task) { t.Request.Agent, t.State = "claude", cofferdam.InReview })
	if code, _, errs := b.run("task", "send", "t-1", "x"); code != 1 || !twoLines(errs) {
		t.Errorf("nobody hears: exit %d %s", code, errs)
	}
}
