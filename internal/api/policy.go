package api

import (
	"strconv"

	"cofferdam"
	"cofferdam/policy/analysis"
)

var levelParam = Param{"level", "string", "organization, or project, which is meant without it"}

// policyRoutes are those of documents of policy: versions, proposals, decisions,
// and what a policy makes of a question or of old events.
func policyRoutes() []Route {
	const list = "cofferdam/policy-list/v1"
	level := func(c *call) cofferdam.PolicyLevel { return cofferdam.PolicyLevel(c.query.Get("level")) }
	return []Route{
		{Method: "GET", Path: "/v1/policies", ID: "listPolicies", Doc: "versions of a document, newest first, without their texts", Reply: cofferdam.PolicyVersion{}, List: list, Query: []Param{levelParam}, call: func(c *call) (any, error) {
			all, err := c.svc.ListPolicies(c.ctx, level(c))
			return listOf(list, all, err)
		}},
		{Method: "POST", Path: "/v1/policies", ID: "proposePolicy", Doc: "keep a document for a person to decide about", Body: cofferdam.PolicyRequest{}, Reply: cofferdam.PolicyProposal{}, Created: true, call: func(c *call) (any, error) {
			return c.svc.ProposePolicy(c.ctx, *c.body.(*cofferdam.PolicyRequest))
		}},
		{Method: "GET", Path: "/v1/policies/{name}", ID: "viewPolicy", Doc: "one version by its number, or now, with what it makes possible", Reply: cofferdam.PolicyProposal{}, Query: []Param{levelParam}, call: func(c *call) (any, error) {
			n, err := versionOf(c.name, "now")
			if err != nil {
				return nil, err
			}
			return c.svc.Policy(c.ctx, level(c), n)
		}},
		{Method: "POST", Path: "/v1/policies/{name}/decide", ID: "decidePolicy", Doc: "a person's word about a proposal as they saw it, with a fresh proof that it is theirs", Body: cofferdam.PolicyDecision{}, Reply: cofferdam.PolicyProposal{}, call: func(c *call) (any, error) {
			n, err := versionOf(c.name, "")
			if err != nil {
				return nil, err
			}
			return c.svc.DecidePolicy(c.ctx, n, *c.body.(*cofferdam.PolicyDecision))
		}},
		{Method: "POST", Path: "/v1/policy/explain", ID: "explainPolicy", Doc: "why something is allowed or not, and the smallest rule that would allow it", Body: cofferdam.PolicyQuestion{}, Reply: analysis.Explanation{}, call: func(c *call) (any, error) {
			return c.svc.ExplainPolicy(c.ctx, *c.body.(*cofferdam.PolicyQuestion))
		}},
		{Method: "POST", Path: "/v1/policy/replay", ID: "replayPolicy", Doc: "what a document would have made of what a task or session did", Body: cofferdam.PolicyTrial{}, Reply: analysis.Replay{}, call: func(c *call) (any, error) {
			return c.svc.ReplayPolicy(c.ctx, *c.body.(*cofferdam.PolicyTrial))
		}},
		{Method: "GET", Path: "/v1/policy/promotion", ID: "promotePolicy", Doc: "whether what is on record suggests a wider class for the project, and why", Reply: analysis.Promotion{}, call: func(c *call) (any, error) {
			return c.svc.PromotePolicy(c.ctx)
		}},
		{Method: "GET", Path: "/v1/policy/suggest/{name}", ID: "suggestPolicy", Doc: "a document made of what a task or session did", Reply: cofferdam.PolicySuggestion{}, call: func(c *call) (any, error) {
			return c.svc.SuggestPolicy(c.ctx, c.name)
		}},
	}
}

// versionOf reads the number of a version, or 0 for the word that names the one
// that counts.
func versionOf(name, word string) (int64, error) {
	if name == word && word != "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != name {
		return 0, invalid("version "+visible(name), "is no number from 1 on", "cofferdam policy list shows them")
	}
	return n, nil
}
