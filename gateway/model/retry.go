package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"cofferdam"
	"cofferdam/gateway"
)

// Bounds of what is tried for one call of a box. The agents try again by
// themselves, several times and for longer; this is for what is over in seconds.
const (
	// maxTries of one registration.
	maxTries = 3
	// tryWindow is how long after the call began another try may begin.
	tryWindow = 60 * time.Second
	// firstPause doubles with each try; jitter takes up to a half of it.
	firstPause = time.Second
	// longestPause is the longest that is waited on a provider's word; one that
	// wants more is left to the fallbacks, or to the agent.
	longestPause = 20 * time.Second
	drainBytes   = 64 << 10 // of an answer that is not passed on, so that its connection can be used again
)

// run takes the exchange through its registrations: the task's own, then its
// fallbacks, each with its tries.
func (x *exchange) run() error {
	own := x.caller.Model
	if own.Name == "" { // policy refuses, and says what there is instead
		return gateway.Handle(x.request.Context(), x.caller, x.act(own, x.asked.Asked, x.body), func(context.Context) (gateway.Outcome, error) {
			return gateway.Outcome{}, invalid("the session has no model", "start the task with --model")
		})
	}
	target, allowed := resolve(own, x.asked.Asked)
	switch {
	case x.asked.exit != "" || searching(target) != "":
		exit := x.asked.exit
		if exit == "" {
			exit = searching(target)
		}
		return x.reject(own, target, RuleExit,
			"the request asks the provider to reach out by itself or to use what it keeps ("+exit+"), which would be a way around this box's policy",
			"use tools that run inside the box and send content itself; hosts that the task may reach are reached from there")
	case !allowed && x.call.op != opModels:
		reason, hint := notAllowed(own, x.asked.Asked, target)
		return x.reject(own, target, RuleModel, reason, hint)
	}
	chain := append([]cofferdam.Model{own}, x.fallbacks()...)
	for i, m := range chain {
		err := x.at(m, &retries{begun: x.begun, first: x.gateway.pause, more: i+1 < len(chain)})
		if next := (*again)(nil); !errors.As(err, &next) {
			return err
		}
	}
	return nil // cannot happen: the last of the chain is never told to go on
}

func (x *exchange) reject(m cofferdam.Model, target, rule, reason, hint string) error {
	act := x.act(m, target, x.body)
	delete(act.Fields, "try")
	return gateway.Reject(x.request.Context(), x.caller, act, rule, reason, hint)
}

// fallbacks are the registrations that may take the call over: those that are
// still there, speak the same protocol and may be asked for this model.
func (x *exchange) fallbacks() []cofferdam.Model {
	var list []cofferdam.Model
	for _, name := range x.caller.Model.Fallback {
		if x.gateway.options.Find == nil {
			return nil
		}
		m, err := x.gateway.options.Find(x.request.Context(), x.caller.Scope, name)
		if err != nil || m.Name != name || m.Provider != x.caller.Model.Provider {
			continue
		}
		if target, allowed := resolve(m, x.asked.Asked); allowed && searching(target) == "" {
			list = append(list, m)
		}
	}
	return list
}

// at makes the tries at one registration.
func (x *exchange) at(m cofferdam.Model, r *retries) error {
	target, _ := resolve(m, x.asked.Asked)
	for {
		err := x.try(m, target, r)
		var next *again
		if !errors.As(err, &next) || next.moveOn {
			return err
		}
		select {
		case <-time.After(next.pause):
		case <-x.request.Context().Done():
			return next.cause
		}
	}
}

// retries decides whether there is another try.
type retries struct {
	begun time.Time     // of the call
	first time.Duration // the first pause
	more  bool          // there is a fallback after this registration
	made  int
}

// again is the error of a try after which there is another one.
type again struct {
	cause  error
	pause  time.Duration
	moveOn bool // not at this registration
}

func (a *again) Error() string { return a.cause.Error() }
func (a *again) Unwrap() error { return a.cause }

// plan says for the record what follows.
func (a *again) plan() string {
	if a.moveOn {
		return "fallback"
	}
	return "again in " + a.pause.Round(time.Millisecond).String()
}

// next returns what follows a try that brought nothing: an again, or cause
// itself if there is nothing more to try. after is how long the provider wants
// to be left alone; final says that it wants no other try.
func (r *retries) next(cause error, after time.Duration, final bool) error {
	r.made++
	pause := r.first << (r.made - 1)
	pause = max(after, pause-time.Duration(rand.Int64N(int64(pause)/2)))
	switch {
	case !final && r.made < maxTries && pause <= longestPause && time.Since(r.begun)+pause <= tryWindow:
		return &again{cause: cause, pause: pause}
	case r.more:
		return &again{cause: cause, moveOn: true}
	}
	return cause
}

// judge looks at an answer before anything of it is passed on. An again means
// that it is not, and that nobody has seen it; nil that it is.
func (r *retries) judge(p *protocol, resp *http.Response, stream bool) error {
	var cause error
	switch {
	case passing(resp.StatusCode):
		cause = unavailable(fmt.Sprintf("the model provider answered %d", resp.StatusCode))
	case resp.StatusCode == http.StatusOK && stream:
		if err := hold(p, resp); err != nil {
			cause = unavailable(err.Error())
		}
	}
	if cause == nil {
		return nil
	}
	next := (*again)(nil)
	if err := r.next(cause, retryAfter(resp.Header, time.Now()), resp.Header.Get("X-Should-Retry") == "false"); !errors.As(err, &next) {
		return nil // the box gets what there is
	}
	_, _ = io.CopyN(io.Discard, resp.Body, drainBytes) // whatever comes of it, the answer is given up
	return next
}

// passing says whether a status is one that may be over in a moment.
func passing(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, 529: // 529 is Anthropic's "overloaded"
		return true
	}
	return false
}

// retryAfter reads how long a provider wants to be left alone: milliseconds,
// seconds or a date. What cannot be read is no wish.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
