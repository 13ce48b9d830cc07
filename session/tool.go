package session

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/agent/loop"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// may asks about a call of one of our own agent's tools, and makes it by do if it
// may be made: the same six steps as for what leaves a box, before the hand moves.
// A call that a process before this one began was let through then, and goes on.
func (b brain) may(ctx context.Context, c loop.Call, do func(context.Context) error) (refusal string, err error) {
	if _, began := b.ledger.exec(c.ID); began {
		return "", do(ctx)
	}
	caller, name := b.grant.caller, policy.OwnTools+":"+c.Tool
	act := gateway.Request{
		Source: "tool", Kind: cofferdam.EventTool, Resource: name, Fields: map[string]string{fieldExec: string(c.ID)},
		Query: policy.Query{Action: policy.Invoke, Name: name, Args: c.Input},
		Show:  func(context.Context) (gateway.Shown, error) { return gateway.Show(c.Input, ""), nil },
	}
	made := false
	if why := beyond(caller.Contract, name); why != "" {
		act.Fields[cofferdam.FieldBeyond] = name
		if !caller.Contract.Mark {
			return told(gateway.Reject(ctx, caller, act, cofferdam.RuleScope, why, "do it with the tools of the scope; a person can give another task with --scope-tool"))
		}
	}
	err = gateway.Handle(ctx, caller, act, func(ctx context.Context) (gateway.Outcome, error) {
		made = true
		return gateway.Outcome{}, do(ctx)
	})
	if made {
		return "", err
	}
	return told(err)
}

// told is a refusal as the model hears it; any other error is one.
func told(err error) (refusal string, _ error) {
	if err == nil {
		return "", nil
	}
	if kind := cofferdam.KindOf(err); kind != cofferdam.Denied && kind != cofferdam.Exhausted {
		return "", err
	}
	reason, hint := gateway.Explain(err)
	return reason + "; " + hint, nil
}

// beyond says why a tool is not one of a task's scope; "" if it is.
func beyond(c *cofferdam.Contract, name string) string {
	if c == nil || len(c.Tools) == 0 {
		return ""
	}
	in := slices.ContainsFunc(c.Tools, func(entry string) bool {
		r, err := policy.ParseOpening(policy.Invoke, entry)
		return err == nil && r.Matches(name)
	})
	if in {
		return ""
	}
	return fmt.Sprintf("this task's scope does not have the tool %s; it has %s", name, strings.Join(c.Tools, ", "))
}
