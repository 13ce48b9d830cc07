package service

import (
	"context"
	"fmt"
	"testing"

	"cofferdam"
	"cofferdam/identity"
)

// A proof for one change of what proves a person, of a member or of tokens is about
// that change alone: what they agreed to in a browser must not let another request,
// of whoever has their token, make another one. The same request is about the same.
func TestAProofIsAboutOneChange(t *testing.T) {
	s, _ := world(t)
	seen := &abouts{Prover: s.Prover}
	s.Prover, s.Provider = seen, noProvider{}
	member(t, s, "zoe", "viewer")
	if err := s.RemoveMember(as(tess), "zoe", cofferdam.MemberRemoval{Level: cofferdam.OfOrganization}); err != nil {
		t.Fatal(err)
	}
	member(t, s, "yan", "viewer")
	proof := cofferdam.Proof{Kind: identity.Password, Password: "not it"} // so that each change could be made again
	enroll := func(r cofferdam.EnrollRequest) func(context.Context) {
		return func(ctx context.Context) { r.Proof = proof; _, _ = s.Enroll(ctx, r) }
	}
	bind := func(r cofferdam.LoginFinish) func(context.Context) {
		return func(ctx context.Context) { r.Proof = proof; _ = s.BindSignIn(ctx, r) }
	}
	member := func(r cofferdam.MemberRequest) func(context.Context) {
		return func(ctx context.Context) { r.Proof = proof; _, _ = s.AddMember(ctx, r) }
	}
	if _, err := s.CreateTask(as(alice), request()); err != nil {
		t.Fatal(err)
	}
	approve := func(r cofferdam.ApproveRequest) func(context.Context) {
		return func(ctx context.Context) { r.Proof = proof; _, _ = s.ApproveMerge(ctx, "t-1", r) }
	}
	reject := func(r cofferdam.RejectRequest) func(context.Context) {
		return func(ctx context.Context) { r.Proof = proof; _, _ = s.RejectMerge(ctx, "t-1", r) }
	}
	of := map[cofferdam.Digest]string{}
	for name, do := range map[string]func(context.Context){
		"a password":                   enroll(cofferdam.EnrollRequest{Kind: "password", Password: "one of hers"}),
		"another password":             enroll(cofferdam.EnrollRequest{Kind: "password", Password: "one of eve's"}),
		"codes":                        enroll(cofferdam.EnrollRequest{Kind: "totp", Secret: "A"}),
		"another's codes":              enroll(cofferdam.EnrollRequest{Kind: "totp", Secret: "B"}),
		"a passkey":                    enroll(cofferdam.EnrollRequest{Kind: "passkey", Credential: []byte("{}")}),
		"one away":                     func(ctx context.Context) { _ = s.Unenroll(ctx, "f-1", proof) },
		"another away":                 func(ctx context.Context) { _ = s.Unenroll(ctx, "f-2", proof) },
		"an account":                   bind(cofferdam.LoginFinish{Ticket: "a", State: "b", Code: "c"}),
		"another account":              bind(cofferdam.LoginFinish{Ticket: "d", State: "b", Code: "c"}),
		"a member":                     member(cofferdam.MemberRequest{Name: "bob", Role: "viewer"}),
		"a member that is not":         member(cofferdam.MemberRequest{Name: "bob", Role: "viewer", Service: true}),
		"a member of all":              member(cofferdam.MemberRequest{Name: "bob", Role: "viewer", Level: cofferdam.OfOrganization}),
		"one who leaves":               func(ctx context.Context) { _ = s.RemoveMember(ctx, "yan", cofferdam.MemberRemoval{Proof: proof}) },
		"an approval":                  approve(cofferdam.ApproveRequest{Commit: commit('a'), Policy: "sha256:1"}),
		"an approval of another":       approve(cofferdam.ApproveRequest{Commit: commit('b'), Policy: "sha256:1"}),
		"an approval by other rules":   approve(cofferdam.ApproveRequest{Commit: commit('a'), Policy: "sha256:2"}),
		"a rejection":                  reject(cofferdam.RejectRequest{Commit: commit('a'), Reason: "no"}),
		"a rejection of another":       reject(cofferdam.RejectRequest{Commit: commit('b'), Reason: "no"}),
		"a rejection for other reason": reject(cofferdam.RejectRequest{Commit: commit('a'), Reason: "not so"}),
		"one who comes back": func(ctx context.Context) {
			_, _ = s.ReopenMember(ctx, "zoe", cofferdam.MemberReopening{Role: "viewer", Proof: proof})
		},
	} {
		seen.list = nil
		do(as(alice))
		do(as(alice))
		if len(seen.list) != 2 || seen.list[0] != seen.list[1] || seen.list[0] == "" {
			t.Errorf("%s: %v", name, seen.list)
			continue
		}
		if other := of[seen.list[0]]; other != "" {
			t.Errorf("a proof for %s counts for %s", name, other)
		}
		of[seen.list[0]] = name
	}
}

// abouts notes what proofs are about.
type abouts struct {
	Prover
	list []cofferdam.Digest
}

func (a *abouts) Prove(ctx context.Context, who cofferdam.PersonID, p cofferdam.Proof, about cofferdam.Digest) (identity.Presence, error) {
	a.list = append(a.list, about)
	return a.Prover.Prove(ctx, who, p, about)
}

// noProvider binds nobody.
type noProvider struct{ SignInProvider }

func (noProvider) Bind(context.Context, identity.Caller, string, string, string) error {
	return fmt.Errorf("not here")
}
