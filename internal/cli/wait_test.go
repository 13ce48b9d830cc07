package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"cofferdam"
)

// TestWaitForState: task wait --state ends with 0 in that state alone, with 8 when
// the time is over, and otherwise with the task's end: never with 0 then.
func TestWaitForState(t *testing.T) {
	b := newBench(t)
	task := b.shop()
	for _, c := range []struct {
		now  cofferdam.TaskState
		want string
		code int
		says string
	}{
		{cofferdam.Queued, "queued", 0, ""},
		{cofferdam.Queued, "running", 8, ""},
		{cofferdam.Running, "running", 0, ""},
		{cofferdam.Waiting, "waiting", 0, ""},
		{cofferdam.Waiting, "done", 8, ""}, // at rest, and waited past
		{cofferdam.InReview, "in-review", 0, ""},
		{cofferdam.InReview, "in review", 0, ""},
		{cofferdam.InReview, "done", 8, ""},
		{cofferdam.Done, "done", 0, ""},
		{cofferdam.Done, "running", 1, "t-1 is done, not running"},
		{cofferdam.NothingToDo, "done", 1, "t-1 is nothing to do, not done"},
		{cofferdam.Blocked, "done", 1, "t-1 is blocked"},
		{cofferdam.Blocked, "blocked", 0, ""},
		{cofferdam.Failed, "in-review", 1, "t-1 is failed"},
		{cofferdam.TimedOut, "done", 12, "t-1 is timed out"},
		{cofferdam.Cancelled, "done", 130, "t-1 is cancelled"},
		{cofferdam.Running, "finished", 2, "one of queued, preparing"},
		{cofferdam.Running, "", 2, "--state is empty"},
		{cofferdam.Running, strings.Repeat("x", 400), 2, "longer than 300 bytes"},
		{cofferdam.Running, "run\x1b[2Jning", 2, "is none"},
	} {
		b.m.Set(task.ID, func(t *cofferdam.Task) { t.State = c.now })
		code, out, errs := b.run("task", "wait", "t-1", "--timeout", "0s", "--state", c.want)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) || c.says == "" && errs != "" || strings.Contains(errs, "\x1b") {
			t.Errorf("%s, waited for %.40q: exit %d, want %d\n%s%s", c.now, c.want, code, c.code, out, errs)
		}
	}
	b.m.Set(task.ID, func(t *cofferdam.Task) { t.State = cofferdam.Running })
	code, out, _ := b.run("task", "wait", "t-1", "--state", "running", "--json")
	if code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, `"running"`) {
		t.Errorf("in JSON: exit %d %s", code, out)
	}
}
