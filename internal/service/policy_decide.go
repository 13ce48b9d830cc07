package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cofferdam"
	"cofferdam/proof"
)

// AboutPolicy is what a proof for a decision is about: the proposal as it was
// seen, and the word.
func AboutPolicy(hash cofferdam.Digest, take bool) cofferdam.Digest {
	return digestOf("policy-decision", hash, take)
}

// DecidePolicy takes a person's word about a proposal that they looked at, with a
// fresh proof that it is theirs. Where the organisation wants a second person, it
// is not the one who proposed. What is taken counts at once: sessions that run
// are judged by it from then on, and what waits for an answer under the policy
// before is void.
func (s *Service) DecidePolicy(ctx context.Context, version int64, r cofferdam.PolicyDecision) (cofferdam.PolicyProposal, error) {
	const op = "service.DecidePolicy"
	a, err := s.enter(ctx, op)
	if err != nil {
		return cofferdam.PolicyProposal{}, err
	}
	scope, err := reachWithRole(a, op, r.Level, "policy")
	if err != nil {
		return cofferdam.PolicyProposal{}, err
	}
	s.deciding.Lock() // what one sees is what counts when they decide
	defer s.deciding.Unlock()
	p, err := s.decidable(ctx, a, scope, version, r)
	if err != nil {
		return p, err
	}
	how, err := s.present(ctx, a.Caller, r.Proof, AboutPolicy(p.Hash, r.Take))
	if err != nil {
		return p, err
	}
	if p.PolicyVersion, err = s.decide(ctx, a, p, r.Take, how); err != nil {
		return p, err
	}
	if r.Take {
		err = s.Judge(ctx, scope)
	}
	if err != nil {
		return p, &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: fmt.Sprintf("version %d", version), Reason: "it counts, but not every session that runs could be judged by it",
			Hint: "what could not be judged may do nothing; cancel it or try it again", Err: err,
		}
	}
	return s.proposal(ctx, p.PolicyVersion)
}

// decidable says whether a may decide so about a version now.
func (s *Service) decidable(ctx context.Context, a Acting, scope cofferdam.Scope, version int64, r cofferdam.PolicyDecision) (cofferdam.PolicyProposal, error) {
	const op = "service.DecidePolicy"
	subject := fmt.Sprintf("version %d of the policy of the %s", version, nameAt(scope))
	conflict := func(why, hint string) error {
		return &cofferdam.Error{Op: op, Kind: cofferdam.Conflict, Subject: subject, Reason: why, Hint: hint}
	}
	if version < 1 {
		return cofferdam.PolicyProposal{}, invalid(op, "version", "it is no number from 1 on", "cofferdam policy list shows them")
	}
	v, err := s.version(ctx, scope, version)
	if err != nil {
		return cofferdam.PolicyProposal{}, err
	}
	p, err := s.proposal(ctx, v)
	switch {
	case err != nil:
		return p, err
	case v.State != cofferdam.PolicyProposed:
		return p, conflict("it is "+string(v.State)+" already", "propose it anew if it is wanted after all")
	case !r.Take:
	case p.Left:
		return p, conflict(v.ProposedBy+", who proposed it, has no account here any more", "who wants it proposes the same text: cofferdam policy view "+fmt.Sprint(version)+" --text shows it")
	case v.Version < p.Before:
		return p, conflict(fmt.Sprintf("version %d was taken after it was proposed", p.Before), "propose it anew: what it opens has to be seen beside what counts now")
	case p.Second && !strings.HasPrefix(v.ProposedBy, string(cofferdam.Person)+":") && !strings.HasPrefix(v.ProposedBy, string(cofferdam.TestPerson)+":"):
		return p, &cofferdam.Error{
			Op: op, Kind: cofferdam.Forbidden, Subject: subject, Reason: "the organisation wants two people, and " + v.ProposedBy + " is a program, which anybody may stand behind",
			Hint: "one of them gives the same text to cofferdam policy propose",
		}
	case p.Second && v.ProposedBy == a.Caller.Principal.String():
		return p, &cofferdam.Error{
			Op: op, Kind: cofferdam.Forbidden, Subject: subject, Reason: "the organisation wants a second person, and you proposed it", Hint: "another owner runs cofferdam policy approve",
		}
	}
	if r.Take {
		if _, err := s.sound(ctx, op, scope, v.Text); err != nil {
			return p, err // what is above it has changed since
		}
	}
	if p.Hash == "" || r.Hash != p.Hash {
		return p, conflict("what was looked at is not what would count", fmt.Sprintf("look at it again with cofferdam policy view %d", version))
	}
	return p, nil
}

// decide puts a decision on record, signs it and has it count.
func (s *Service) decide(ctx context.Context, a Acting, p cofferdam.PolicyProposal, take bool, how string) (cofferdam.PolicyVersion, error) {
	v := p.PolicyVersion
	v.State, v.DecidedBy, v.Decided = cofferdam.PolicyRejected, a.Caller.Principal.String(), s.Now().UTC()
	if take {
		v.State = cofferdam.PolicyTaken
		note, err := s.SignPolicy(proof.PolicyChange{
			Scope: v.Scope, Version: v.Version, Digest: v.Digest, Before: p.Before, ProposedBy: v.ProposedBy, DecidedBy: v.DecidedBy, Time: v.Decided,
		})
		if err != nil {
			return v, err
		}
		v.Signature = string(note)
	}
	err := s.recordPolicy(ctx, a, cofferdam.EventPolicyChange, v, map[string]string{
		"state": string(v.State), "before": fmt.Sprint(p.Before), "proof": how, "hash": string(p.Hash), "opens": fmt.Sprint(len(p.Opens) + len(p.Unbounded)),
	})
	if err != nil {
		return v, errors.Join(&cofferdam.Error{Op: "service.DecidePolicy", Kind: cofferdam.Unavailable, Subject: "decision", Reason: "it cannot be put on record, so it does not count", Hint: "look at the server's disk with cofferdam doctor"}, err)
	}
	return v, s.Policies.DecidePolicy(ctx, v)
}
