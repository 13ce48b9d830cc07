package client

import (
	"context"
	"net/url"
	"strconv"

	"cofferdam"
	"cofferdam/policy/analysis"
)

func ofLevel(level cofferdam.PolicyLevel) string {
	if level == "" {
		return ""
	}
	return "?level=" + url.QueryEscape(string(level))
}

// Policies lists versions of a document, the newest first, without their texts.
func (c *Client) Policies(ctx context.Context, level cofferdam.PolicyLevel) ([]cofferdam.PolicyVersion, error) {
	return items[cofferdam.PolicyVersion](ctx, c, "/v1/policies"+ofLevel(level))
}

// Policy returns a version with what it makes possible; 0 is the one that counts.
func (c *Client) Policy(ctx context.Context, level cofferdam.PolicyLevel, version int64) (cofferdam.PolicyProposal, error) {
	name := "now"
	if version != 0 {
		name = strconv.FormatInt(version, 10)
	}
	return get[cofferdam.PolicyProposal](ctx, c, at("policies", name)+ofLevel(level))
}

// ProposePolicy keeps a document for a person to decide about.
func (c *Client) ProposePolicy(ctx context.Context, r cofferdam.PolicyRequest) (cofferdam.PolicyProposal, error) {
	return post[cofferdam.PolicyProposal](ctx, c, "/v1/policies", r, "")
}

// DecidePolicy gives a person's word about a proposal as they saw it.
func (c *Client) DecidePolicy(ctx context.Context, version int64, r cofferdam.PolicyDecision) (cofferdam.PolicyProposal, error) {
	return post[cofferdam.PolicyProposal](ctx, c, at("policies", strconv.FormatInt(version, 10))+"/decide", r, "")
}

// ExplainPolicy says why something is allowed or not.
func (c *Client) ExplainPolicy(ctx context.Context, q cofferdam.PolicyQuestion) (analysis.Explanation, error) {
	return post[analysis.Explanation](ctx, c, "/v1/policy/explain", q, "")
}

// ReplayPolicy judges what a task or session did by a document.
func (c *Client) ReplayPolicy(ctx context.Context, t cofferdam.PolicyTrial) (analysis.Replay, error) {
	return post[analysis.Replay](ctx, c, "/v1/policy/replay", t, "")
}

// SuggestPolicy makes a document of what a task or session did.
func (c *Client) SuggestPolicy(ctx context.Context, of string) (cofferdam.PolicySuggestion, error) {
	return get[cofferdam.PolicySuggestion](ctx, c, at("policy/suggest", of))
}

// PromotePolicy says whether what is on record suggests a wider class.
func (c *Client) PromotePolicy(ctx context.Context) (analysis.Promotion, error) {
	return get[analysis.Promotion](ctx, c, "/v1/policy/promotion")
}

// BindWebhook says what a system that brings answers calls the caller.
func (c *Client) BindWebhook(ctx context.Context, r cofferdam.WebhookBinding) error {
	return c.call(ctx, request{method: "POST", path: "/v1/webhook/bind", body: r}, nil)
}

// RotateWebhook makes another secret for notices of questions.
func (c *Client) RotateWebhook(ctx context.Context) (cofferdam.WebhookSecret, error) {
	return post[cofferdam.WebhookSecret](ctx, c, "/v1/webhook/rotate", nil, "")
}

// OpenTask opens one entry for the rest of a task, by a person's word.
func (c *Client) OpenTask(ctx context.Context, task string, r cofferdam.OpenRequest) (cofferdam.Question, error) {
	return post[cofferdam.Question](ctx, c, at("tasks", task)+"/open", r, "")
}
