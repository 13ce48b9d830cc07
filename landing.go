package cofferdam

// Landing is what policy says of moving a base branch to the commit of a task.
type Landing struct {
	Verdict Verdict `json:"verdict"`
	Rule    string  `json:"rule"`
	Reason  string  `json:"reason"`
	People  int     `json:"people"`           // who have to approve the commit
	Policy  Digest  `json:"policy,omitempty"` // by which this was judged
}

// RejectRequest is a person's word that exactly one commit is not wanted.
type RejectRequest struct {
	Commit Commit `json:"commit"`
	Reason string `json:"reason"`
	Proof  Proof  `json:"proof"`
}
