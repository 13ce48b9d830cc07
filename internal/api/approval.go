package api

import "cofferdam"

var openParam = Param{"open", "string", "true: only those that wait"}

// approvalRoutes are those of questions to people, and of what people prove
// themselves by.
func approvalRoutes() []Route {
	const list, factors = "cofferdam/approval-list/v1", "cofferdam/factor-list/v1"
	return []Route{
		{Method: "GET", Path: "/v1/approvals", ID: "listApprovals", Doc: "questions to people, newest first", Reply: cofferdam.Question{}, List: list, Query: []Param{openParam, limitParam}, call: func(c *call) (any, error) {
			open, err := flag(c.query, "open")
			if err != nil {
				return nil, err
			}
			all, err := c.svc.ListApprovals(c.ctx, open, int(min(number(c.query, "limit"), 1<<20)))
			return listOf(list, all, err)
		}},
		{Method: "GET", Path: "/v1/approvals/{name}", ID: "viewApproval", Doc: "one question, with exactly the bytes that would be sent", Reply: cofferdam.Question{}, call: func(c *call) (any, error) {
			return c.svc.Approval(c.ctx, c.name)
		}},
		{Method: "POST", Path: "/v1/approvals/{name}/answer", ID: "answerApproval", Doc: "a person's word about exactly what they saw, with a fresh proof that it is theirs", Body: cofferdam.AnswerRequest{}, Reply: cofferdam.Question{}, call: func(c *call) (any, error) {
			return c.svc.AnswerApproval(c.ctx, c.name, *c.body.(*cofferdam.AnswerRequest))
		}},
		{Method: "POST", Path: "/v1/approvals/{name}/webhook", ID: "answerByWebhook", Doc: "a person's word, in a message that a registered system signed as Standard Webhooks says: Ed25519, with webhook-id, webhook-timestamp and webhook-signature", Body: cofferdam.WebhookAnswer{}, Reply: cofferdam.Question{}, Open: true, Signed: true, call: func(c *call) (any, error) {
			m := cofferdam.SignedMessage{ID: c.head.Get("webhook-id"), Timestamp: c.head.Get("webhook-timestamp"), Signature: c.head.Get("webhook-signature"), Body: c.raw.Bytes()}
			return c.svc.AnswerByWebhook(c.ctx, c.name, m, *c.body.(*cofferdam.WebhookAnswer))
		}},
		{Method: "POST", Path: "/v1/webhook/bind", ID: "bindWebhook", Doc: "what a registered system calls the caller, with a fresh proof: answers that it brings in that name are theirs", Body: cofferdam.WebhookBinding{}, call: func(c *call) (any, error) {
			return nil, c.svc.BindWebhook(c.ctx, *c.body.(*cofferdam.WebhookBinding))
		}},
		{Method: "POST", Path: "/v1/webhook/rotate", ID: "rotateWebhook", Doc: "another secret for notices of questions, told once; the one before signs beside it for a day", Reply: cofferdam.WebhookSecret{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.RotateWebhook(c.ctx)
		}},
		{Method: "POST", Path: "/v1/tasks/{name}/open", ID: "openTask", Doc: "open one entry for the rest of a task, by a person's word with a fresh proof that it is theirs", Body: cofferdam.OpenRequest{}, Reply: cofferdam.Question{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.OpenTask(c.ctx, c.name, *c.body.(*cofferdam.OpenRequest))
		}},
		{Method: "GET", Path: "/v1/factors", ID: "listFactors", Doc: "what the caller proves themselves by", Reply: cofferdam.Factor{}, List: factors, call: func(c *call) (any, error) {
			all, err := c.svc.ListFactors(c.ctx)
			return listOf(factors, all, err)
		}},
		{Method: "POST", Path: "/v1/factors", ID: "enroll", Doc: "a password or a TOTP for the caller; each after the first needs a proof by one before it", Body: cofferdam.EnrollRequest{}, Reply: cofferdam.Factor{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.Enroll(c.ctx, *c.body.(*cofferdam.EnrollRequest))
		}},
		{Method: "POST", Path: "/v1/factors/{name}/remove", ID: "unenroll", Doc: "take one away, with a proof; the last one stays", Body: cofferdam.Proof{}, call: func(c *call) (any, error) {
			return nil, c.svc.Unenroll(c.ctx, c.name, *c.body.(*cofferdam.Proof))
		}},
	}
}
