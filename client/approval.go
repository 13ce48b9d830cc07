package client

import (
	"context"
	"strconv"

	"cofferdam"
)

// Approvals lists questions to people, newest first; those that wait alone if open.
func (c *Client) Approvals(ctx context.Context, open bool) ([]cofferdam.Question, error) {
	return items[cofferdam.Question](ctx, c, "/v1/approvals?open="+strconv.FormatBool(open))
}

// Approval finds one by its id or a prefix of it.
func (c *Client) Approval(ctx context.Context, id string) (cofferdam.Question, error) {
	return get[cofferdam.Question](ctx, c, at("approvals", id))
}

// Answer gives a person's word about exactly what they saw.
func (c *Client) Answer(ctx context.Context, id cofferdam.QuestionID, r cofferdam.AnswerRequest) (cofferdam.Question, error) {
	return post[cofferdam.Question](ctx, c, at("approvals", string(id))+"/answer", r, "")
}

// Factors lists what the caller proves themselves by.
func (c *Client) Factors(ctx context.Context) ([]cofferdam.Factor, error) {
	return items[cofferdam.Factor](ctx, c, "/v1/factors")
}

// Enroll gives the caller a factor.
func (c *Client) Enroll(ctx context.Context, r cofferdam.EnrollRequest) (cofferdam.Factor, error) {
	return post[cofferdam.Factor](ctx, c, "/v1/factors", r, "")
}
