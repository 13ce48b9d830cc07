package service

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/identity"
)

// TestEveryVerbHasARow: every call names the verb that it needs by its own name,
// and the list has a row for each and for nothing else.
func TestEveryVerbHasARow(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	call := regexp.MustCompile(`s\.(?:may|who|enter)\(ctx, (?:"(service\.\w+)"|op)\)`)
	method := regexp.MustCompile(`(?m)^func \(s \*Service\) ([A-Z]\w*)\(ctx context\.Context`)
	op := regexp.MustCompile(`\bop\s*=\s*"(service\.\w+)"`)
	open := map[string]bool{"In": true, "Local": true, "Bearer": true, "SignIn": true, "BeginSignIn": true, "FinishSignIn": true, "BeginDeviceSignIn": true, "FinishDeviceSignIn": true, "PasskeyPage": true, "AnswerPasskey": true, "AnswerByWebhook": true} // they find out who is calling
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") || f.Name() == "caller.go" {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range regexp.MustCompile(`(?m)^}\n`).Split(string(text), -1) {
			name := method.FindStringSubmatch(body)
			for _, m := range call.FindAllStringSubmatch(body, -1) {
				verb := m[1]
				if verb == "" {
					if o := op.FindStringSubmatch(body); o != nil {
						verb = o[1]
					}
				}
				asked[verb] = true
				if name != nil && verb != "service."+name[1] && name[1] != "WaitTask" && name[1] != "FollowTask" {
					t.Errorf("%s: %s asks for %s", f.Name(), name[1], verb)
				}
			}
			passes := regexp.MustCompile(`s\.(Task|Session|Policy|ViewMerge|woken|ListTasks|Merge|Events)\(ctx`).MatchString(body)
			if name != nil && !call.MatchString(body) && !passes && !open[name[1]] {
				t.Errorf("%s: %s asks for no verb", f.Name(), name[1])
			}
		}
	}
	for verb := range asked {
		if _, ok := verbs[verb]; !ok {
			t.Errorf("%s is asked for and has no row", verb)
		}
	}
	names := map[string]string{}
	for verb, v := range verbs {
		if !asked[verb] {
			t.Errorf("the row %s is asked for by nobody", verb)
		}
		if !v.needs.Known() || v.name == "" || names[v.name] != "" {
			t.Errorf("%s: %+v, as %s", verb, v, names[v.name])
		}
		names[v.name] = verb
	}
}

// For what only a person may and no proof is asked, a token that the person made
// will not do: a program has it. A login, and whom the kernel names, will.
func TestATokenIsNoPerson(t *testing.T) {
	s, _ := world(t)
	acts := map[string]func(context.Context) error{
		"service.SendTask":     func(ctx context.Context) error { _, err := s.SendTask(ctx, "t-1", "x"); return err },
		"service.ApproveMerge": func(ctx context.Context) error { _, err := s.ApproveMerge(ctx, "t-1", word(commit('a'))); return err },
		"service.RejectMerge": func(ctx context.Context) error {
			_, err := s.RejectMerge(ctx, "t-1", unwanted(commit('a')))
			return err
		},
		"service.LandMerge":      func(ctx context.Context) error { _, err := s.LandMerge(ctx, "t-1", ""); return err },
		"service.RestoreSandbox": func(ctx context.Context) error { _, err := s.RestoreSandbox(ctx, "t-1", "v1"); return err },
		"service.ListOrganizations": func(ctx context.Context) error {
			a, _ := ActingOf(ctx)
			a.Caller.Runs = true
			_, err := s.ListOrganizations(WithActing(ctx, a))
			return err
		},
		"service.AddProject": func(ctx context.Context) error { _, err := s.AddProject(ctx, cofferdam.ProjectRequest{}); return err },
	}
	for op, v := range verbs { // one that is on neither list needs the person there
		if (acts[op] != nil || byToken[op]) && !v.human {
			t.Errorf("%s is no person's word", op)
		}
	}
	with := func(c identity.Caller) context.Context {
		c.Principal, c.Member, c.Organization, c.Memberships = alice, "m", scope.Organization, []identity.Membership{{Member: "m", Role: identity.Owner}}
		return WithActing(context.Background(), Acting{Caller: c, Scope: scope})
	}
	for op, act := range acts {
		if err := act(with(identity.Caller{Token: "k-1", Most: identity.Owner})); cofferdam.KindOf(err) != cofferdam.Forbidden || !strings.Contains(err.Error(), "program") {
			t.Errorf("%s by a token of alice's: %v", op, err)
		}
		for name, c := range map[string]identity.Caller{"her login": {Token: "k-1", Most: identity.Owner, Signed: time.Now()}, "the kernel": {}} {
			if err := act(with(c)); cofferdam.KindOf(err) == cofferdam.Forbidden {
				t.Errorf("%s by %s: %v", op, name, err)
			}
		}
	}
}
