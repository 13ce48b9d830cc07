package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam/policy"
)

// The next class is suggested if every reason holds, and each by itself keeps it
// from being.
func TestPromotion(t *testing.T) {
	now := time.Date(2026, 12, 20, 12, 0, 0, 0, time.UTC)
	good := Standing{Class: "read-only", Since: now.AddDate(0, 0, -PromotionDays), Version: 3, Proved: PromotionTasks, Unproved: 2, Allowed: 5, Refused: map[string]int{"read-only.reads": 40, "default-deny": 7}}
	p := Promote(good, now)
	if !p.Suggested || p.Next != "ask-to-write" || len(p.Reasons) != 5 || p.Refused[0] != (RuleCount{"read-only.reads", 40}) || !strings.Contains(p.Reasons[2].What, "2 of 22") {
		t.Errorf("%+v", p)
	}
	for name, change := range map[string]func(*Standing){
		"too few tasks":    func(s *Standing) { s.Proved-- },
		"too few days":     func(s *Standing) { s.Since = s.Since.Add(time.Second) },
		"without proof":    func(s *Standing) { s.Unproved = 3 },
		"beyond a scope":   func(s *Standing) { s.Beyond = 1 },
		"a person's no":    func(s *Standing) { s.Denied = 1 },
		"nothing at all":   func(s *Standing) { *s = Standing{Class: "read-only", Since: now} },
		"a clock set back": func(s *Standing) { s.Since = now.AddDate(1, 0, 0) },
	} {
		s := good
		change(&s)
		if p := Promote(s, now); p.Suggested || !slices.ContainsFunc(p.Reasons, func(r Reason) bool { return !r.Holds }) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	classes := policy.Classes()
	for _, class := range []string{"", "of-another-program", classes[len(classes)-1].Name} {
		s := good
		s.Class = class
		if p := Promote(s, now); p.Suggested || p.Next != "" {
			t.Errorf("class %q: %+v", class, p)
		}
	}
}
