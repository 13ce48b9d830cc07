package model

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"cofferdam"
	"cofferdam/budget"
	"cofferdam/gateway"
)

// spends says whether an operation makes a model work. All others cost nothing.
func spends(op string) bool {
	switch op {
	case opMessages, opResponses, opCompact, opChat, opGenerate:
		return true
	}
	return false
}

// How much a call may take is guessed before it is sent and corrected by what
// the provider counts.
const (
	// bytesPerToken is for text whose tokens nobody has counted yet. English has
	// about 4, program text about 3; a smaller number guesses higher.
	bytesPerToken = 3
	// unsaidOutput is reserved for an answer that comes in one piece and whose
	// request names no bound: what the largest models can write at most.
	unsaidOutput = 128 << 10
	// maxTokens is above what any call can use; a larger figure is nonsense.
	maxTokens = 1_000_000_000
)

// ask is what has to be known of a call to guess what it will cost.
type ask struct {
	Op      string
	Model   string // the id that the provider is asked for, after aliases
	Stream  bool
	Bytes   int   // of the request
	Output  int64 // tokens of one answer at most, as the request says; 0: it does not
	Answers int64 // how many it asks for; 0 is 1

	Dear      string // what in it has a price of its own; "" for nothing
	Uncounted bool   // a stream that will not say what it used
}

// spending is one call's part of the budget, from reserve to settle. The nil
// spending is that of an operation that costs nothing.
type spending struct {
	caller *gateway.Caller
	prices prices
	ask    ask
	held   *budget.Reservation
	guess  tokens // what was reserved when it was sent
	last   tokens // what was reserved last
	cut    error  // why it was ended in the middle; nil if it was not
}

// reserve takes from the task's budget what a call may cost, before it is sent;
// every try of a call is reserved and settled by itself. A call that would pass
// a limit is refused, on record. What is reserved goes into the fields of act,
// so that it is counted even if this process ends before the outcome.
func (k *calls) reserve(ctx context.Context, act gateway.Request, q ask) (*spending, error) {
	if !spends(q.Op) {
		return nil, nil
	}
	s := &spending{caller: k.caller, prices: k.gateway.prices, ask: q, guess: tokens{Input: perToken(q.Bytes)}}
	if rule, reason, hint := s.blind(k.caller.Budget.Limits()); rule != "" {
		return nil, gateway.Reject(ctx, k.caller, act, rule, reason, hint)
	}
	if !q.Stream { // it cannot be cut in the middle, so all of it must fit
		each := int64(unsaidOutput)
		if q.Output > 0 {
			each = min(q.Output, maxTokens)
		}
		s.guess.Output = min(min(max(q.Answers, 1), maxTokens)*each, maxTokens)
	}
	s.last = s.guess
	take := k.caller.Budget.AtMost
	if q.Stream {
		take = k.caller.Budget.Reserve // it follows the answer
	}
	var err error
	if s.held, err = take(s.amount(s.guess)); err != nil {
		reason, hint := gateway.Explain(err)
		return nil, gateway.Reject(ctx, k.caller, act, cofferdam.RuleBudget, reason, hint)
	}
	if act.Fields != nil {
		a := s.amount(s.guess)
		act.Fields[cofferdam.FieldReservedTokens], act.Fields[cofferdam.FieldReservedCost] = decimal(a.Tokens), decimal(a.Cost)
	}
	return s, nil
}

// blind says why a call may not be made under limits, because it could pass them
// unseen; rule is "" if it may.
func (s *spending) blind(limits cofferdam.Budget) (rule, reason, hint string) {
	q := s.ask
	switch {
	case limits.Cost > 0 && q.Dear != "":
		return cofferdam.RuleUnpriced, fmt.Sprintf("the task has a limit of cost, and the request asks for what has another price than the model (%s)", q.Dear),
			"ask for standard service of text and pictures, or limit tokens instead of cost"
	case limits.Cost > 0 && !s.priced():
		return cofferdam.RuleUnpriced, fmt.Sprintf("the task has a limit of cost, and there is no price for the model %.100q", q.Model),
			"a person can set its price with a [[price]] table in cofferdam.toml, or limit tokens instead of cost"
	case (limits.Cost > 0 || limits.Tokens > 0) && q.Uncounted:
		return cofferdam.RuleUncounted, "the task has a limit of tokens or cost, and this stream would not say what it used",
			`send "stream_options": {"include_usage": true}`
	}
	return "", "", ""
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// perToken guesses the tokens of text by its size.
func perToken(bytes int) int64 { return (int64(bytes) + bytesPerToken - 1) / bytesPerToken }

func (s *spending) priced() bool {
	if s.ask.Dear != "" {
		return false
	}
	_, ok := s.prices.of(s.ask.Model, 0)
	return ok
}

func (s *spending) amount(t tokens) budget.Amount {
	price, _ := s.prices.of(s.ask.Model, t.input())
	return budget.Amount{Tokens: t.input() + t.Output, Cost: costOf(price, t), Calls: 1}
}

// hold makes the reservation follow a streamed answer as it comes. An Exhausted
// error means that what came last would pass a limit: the answer ends before it.
func (s *spending) hold(u *usage) error {
	if s == nil || !s.ask.Stream {
		return nil
	}
	t := u.soFar(s.guess)
	if t == s.last {
		return nil
	}
	if s.cut = s.held.Hold(s.amount(t)); s.cut == nil {
		s.last = t
	}
	return s.cut
}

// cutReason says why the budget ended a call in the middle; "" if it did not.
func (s *spending) cutReason() string {
	if s == nil || s.cut == nil {
		return ""
	}
	reason, _ := gateway.Explain(s.cut)
	return reason
}

// settle puts what the call really took in the place of what was reserved,
// counts it for the session, and returns the fields of the outcome. a is nil, or
// has status 0, if no answer came; err is what ended the call.
func (s *spending) settle(a *answer, err error) map[string]string {
	if s == nil {
		return nil
	}
	var t tokens
	estimated := false
	switch {
	case a == nil || a.status == 0:
		if err == nil || unsent(err) {
			s.held.Settle(budget.Amount{})
			return nil
		}
		t, estimated = s.guess, true // the provider may be working all the same
	case s.cut != nil:
		// What the provider wrote until it noticed nobody knows.
		t, estimated = s.last, true
	case a.status >= http.StatusBadRequest:
		t = a.usage.total() // refused by the provider: mostly nothing
	default:
		t, estimated = a.usage.final(s.guess, err != nil)
	}
	spent := s.amount(t)
	s.held.Settle(spent)
	c := &s.caller.Counts
	c.ModelCalls.Add(1)
	c.InputTokens.Add(t.input())
	c.OutputTokens.Add(t.Output)
	fields := map[string]string{cofferdam.FieldInputTokens: decimal(t.input()), cofferdam.FieldOutputTokens: decimal(t.Output)}
	if s.priced() {
		c.Cost.Add(spent.Cost)
		fields[cofferdam.FieldCost] = decimal(spent.Cost)
	} else {
		c.Unpriced.Add(1)
		fields[cofferdam.FieldUnpriced] = "true"
	}
	if t.CacheRead > 0 {
		fields[cofferdam.FieldCacheRead] = decimal(t.CacheRead)
	}
	if t.CacheWrite > 0 {
		fields[cofferdam.FieldCacheWrite] = decimal(t.CacheWrite)
	}
	if estimated {
		fields[cofferdam.FieldEstimated] = "true"
	}
	if s.cut != nil {
		fields[cofferdam.FieldCutBy] = cofferdam.RuleBudget
	}
	return fields
}

// unsent says whether err means that the provider has seen nothing of the call.
func unsent(err error) bool {
	var op *net.OpError
	return cofferdam.KindOf(err) == cofferdam.Denied || errors.As(err, &op) && op.Op == "dial"
}

// refusedForMoney says whether err refuses a call for money's sake.
// Such a refusal is answered with statusForMoney: the four agents give up on
// 400 at once, where codex tries again after 402 and the others after 429.
func refusedForMoney(err error) bool {
	d, ok := gateway.DecisionOf(err)
	return ok && (d.Rule == cofferdam.RuleBudget || d.Rule == cofferdam.RuleUnpriced || d.Rule == cofferdam.RuleUncounted)
}

const statusForMoney = http.StatusBadRequest
