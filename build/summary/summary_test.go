package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	run := func(events ...event) (string, int) {
		var out strings.Builder
		s := &summary{out: &out, text: map[key]*strings.Builder{}, childFailed: map[key]bool{}}
		for _, e := range events {
			s.take(e)
		}
		code := s.close()
		return out.String(), code
	}
	pass := event{Action: "pass", Package: "cofferdam/a", Test: "TestA"}
	skipText := event{Action: "output", Package: "cofferdam/a", Test: "TestB", Output: "    a_test.go:7: needs root: run as root\n"}
	skip := event{Action: "skip", Package: "cofferdam/a", Test: "TestB"}
	for _, c := range []struct {
		name   string
		events []event
		code   int
		want   string
	}{
		{"pass", []event{pass}, 0, "1 passed, 0 failed, 0 skipped"},
		{"nothing ran", nil, 1, "0 passed, 0 failed, 0 skipped"},
		{"skip has its reason", []event{pass, skipText, skip}, 0, "skipped a TestB: needs root: run as root"},
		{"test fails", []event{pass, {Action: "fail", Package: "cofferdam/a", Test: "TestC"}, {Action: "fail", Package: "cofferdam/a"}}, 1, "1 passed, 1 failed, 0 skipped"},
		{"test that never ended", []event{
			{Action: "output", Package: "cofferdam/a", Test: "TestD", Output: "panic: test timed out\n"},
			{Action: "output", Package: "cofferdam/b", Test: "TestE", Output: "another package\n"},
			{Action: "fail", Package: "cofferdam/a"},
		}, 1, "--- failed: a\n--- not ended: a TestD\npanic: test timed out\na\n0 passed, 1 failed"},
		{"package does not build", []event{pass, {Action: "fail", Package: "cofferdam/b"}}, 1, "1 passed, 1 failed, 0 skipped"},
	} {
		out, code := run(c.events...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit %d, output %q; want exit %d and %q", c.name, code, out, c.code, c.want)
		}
	}
}
