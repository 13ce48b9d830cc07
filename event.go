package cofferdam

import (
	"context"
	"time"
)

// Verdict is what a decision said.
type Verdict string

// The verdicts. An outcome carries none: its decision did.
const (
	Allowed Verdict = "allowed"
	Refused Verdict = "refused"
	Asked   Verdict = "asked" // a person has to answer first
)

// Decision is what policy said, and why.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	Rule    string  `json:"rule"`   // id of the rule that decided: "allow-1", "default-deny"
	Reason  string  `json:"reason"` // one sentence, also shown inside the box
	Hint    string  `json:"hint,omitempty"`
	People  int     `json:"people,omitempty"`       // who have to allow it, of Asked; 0: one
	Would   string  `json:"would_refuse,omitempty"` // rule that is log-only, by which it would not have passed
	Policy  Digest  `json:"policy"`                 // of the whole policy that was asked
	Base    Digest  `json:"-"`                      // of it without what people opened: what is on record of a decision
}

// Event is one thing that happened, as it goes on record. What is decided and
// what came of it are two events; the second names the first by Of.
type Event struct {
	Seq  uint64    `json:"seq"` // place in its log, from 0; set by the Recorder
	Time time.Time `json:"time"`
	Scope
	Task    TaskID    `json:"task,omitempty"`
	Session SessionID `json:"session,omitempty"`
	Actor   Principal `json:"actor"`
	Source  string    `json:"source"` // the room that saw it: egress, git, model, wire, session, task, merge
	Kind    string    `json:"kind"`   // noun.verb, one of Kinds of event in docs/SPECIFICATION.md
	Of      *uint64   `json:"of,omitempty"`
	// Resource is what was acted on: host:port, a ref, a model, a command.
	Resource string            `json:"resource,omitempty"`
	Verdict  Verdict           `json:"verdict,omitempty"`
	Rule     string            `json:"rule,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Outcome  string            `json:"outcome,omitempty"` // ok, failed, cut
	Fields   map[string]string `json:"fields,omitempty"`
	// Durable asks that the event is synced to disk before Record returns.
	Durable bool `json:"-"`
}

// Kinds of event. The prefix is what an event is about; Source says who saw it.
const (
	EventSessionOpen  = "session.open"
	EventSessionState = "session.state"
	EventSessionSeal  = "session.seal"
	EventSessionAsk   = "session.ask"       // its agent asks a person
	EventSessionWarn  = "session.warning"   // it is about to be suspended, or to end
	EventBudgetWarn   = "budget.warning"    // most of what the task has of something is used; the resource says of what
	EventSessionStuck = "session.stuck"     // its agent tries the same again and again and is refused
	EventSuspended    = "session.suspended" // its box went to disk, or why it does not
	EventResumed      = "session.resumed"   // warm: the same box; cold: a new one
	EventExecStart    = "exec.start"
	EventExecOutput   = "exec.output"
	EventExecEnd      = "exec.end"
	EventAgentMessage = "agent.message"
	EventAgentTool    = "agent.tool"
	EventAgentFile    = "agent.file" // the agent says that it changed a file
	EventAgentCost    = "agent.cost" // what the agent says it spent; the gateway's own count is in model.call
	EventAgentTurn    = "agent.turn" // the agent was started, or its conversation went on; says why
	EventAgentEnd     = "agent.end"
	EventDNS          = "egress.resolve"
	EventConnect      = "egress.connect"
	EventRequest      = "egress.request"
	EventDrop         = "wire.drop"
	EventFetch        = "git.fetch"
	EventPush         = "git.push"
	EventModelCall    = "model.call"
	EventTool         = "tool.call"      // a tool of our own agent
	EventSecret       = "secret.use"     // a credential is to be attached to what was let through
	EventProposal     = "egress.propose" // an agent asks a person to open a host for its task
	EventModelText    = "model.text"     // a part of a prompt or an answer, where the model's registration keeps text
	EventTaskState    = "task.state"
	EventTaskMessage  = "task.message" // a person steers; in the session's log when the agent is told
	EventReceipt      = "proof.create"
	EventApprove      = "merge.approve"
	EventVoid         = "merge.void"
	// Of people's accounts, in the host log.
	EventFactorAdd    = "identity.factor"
	EventFactorRemove = "identity.unfactor"
	EventTokenIssue   = "identity.token"
	EventTokenRevoke  = "identity.revoke"
	EventMember       = "identity.member"
	EventLogin        = "identity.login"
	EventProject      = "identity.project"
	EventOrganization = "identity.organization"
	// Of a session's own token, in its log.
	EventWorkload = "identity.workload"
	// Of questions to people, in the host log.
	EventApprovalAsk    = "approval.ask"
	EventApprovalAnswer = "approval.answer"
	EventApprovalEnd    = "approval.end"
	EventApprovalRefuse = "approval.refuse"  // a message of a system outside counts for nothing
	EventApprovalSecret = "approval.webhook" // notices are signed with another secret from now on
	// Of documents of policy, in the host log.
	EventPolicyPropose = "policy.propose"
	EventPolicyChange  = "policy.change"
	EventLand          = "merge.land"
	// Of a workspace's checkpoints.
	EventCheckpoint       = "sandbox.checkpoint"
	EventRestoreAsk       = "sandbox.ask"     // whether a person may put the workspace back
	EventRestore          = "sandbox.restore" // the workspace is to be put back to one; with of, what came of it
	EventCheckpointRemove = "sandbox.remove"  // in the host log
	// Of a workspace that outlives its boxes, in the host log.
	EventWorkspaceNotice = "workspace.notice" // it will be removed
	EventWorkspaceExport = "workspace.export" // what is in it and nowhere else is in a bundle
	EventWorkspaceRemove = "workspace.remove" // it, or its bundle, is about to be

	EventSeal = "trace.seal" // in the host log: a session's log was sealed
	EventGap  = "trace.gap"  // in any log: recording failed for a while, or a torn record was cut
)

// Fields of decisions.
const (
	FieldQuery = "policy_query" // what policy was asked, as JSON (policy.Query)
	FieldWould = "would_refuse" // rule that is log-only, by which it would not have passed
)

// Fields of model.call events. A decision has the reserved ones, an outcome the
// others.
const (
	FieldReservedTokens = "reserved_tokens"
	FieldReservedCost   = "reserved_microdollars"
	FieldInputTokens    = "input_tokens" // those from and to the provider's cache included
	FieldOutputTokens   = "output_tokens"
	FieldCacheRead      = "cache_read_tokens"
	FieldCacheWrite     = "cache_write_tokens"
	FieldCost           = "cost_microdollars"
	FieldUnpriced       = "unpriced"     // "true": the model has no price
	FieldEstimated      = "estimated"    // "true": not the provider's own count
	FieldEgress         = "egress_bytes" // of a decision of egress: what its head and a body of known length send; of an outcome: what was sent
	FieldCutBy          = "cut_by"       // RuleBudget
	FieldCredential     = "credential"   // of a request: where it carries a key, token or password of the box's own
)

// Rules by which a model call is refused for money's sake.
const (
	RuleBudget    = "budget"    // a limit of the task would be passed
	RuleUnpriced  = "unpriced"  // the task has a cost limit, and nobody knows what the call costs
	RuleUncounted = "uncounted" // the task has a limit of tokens or cost, and a stream would not say what it used
)

// Recorder puts events on record. Record returns once the event is written, so
// that it survives the end of this process, and synced to disk if the event is
// Durable; an error means it is not on record and the act must not happen.
// It sets Seq and, where it is zero, Time. Values of known secrets are removed
// before anything is written. Safe for concurrent use.
type Recorder interface {
	Record(ctx context.Context, e Event) (Event, error)
}
