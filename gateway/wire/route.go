package wire

import (
	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// Routes is the Router of every session: our own names, each with its gateway,
// and one gateway for the rest of the world.
type Routes struct {
	Own     map[cofferdam.Host]gateway.Handler // served on port 80 alone
	Others  gateway.Handler
	Refused gateway.Handler

	// Provider serves the own name of a session's model provider, on port 443
	// alone. Without a model that name is one of Others.
	Provider gateway.Handler
}

// Handler implements Router. For names outside it asks policy about ports
// other than those of the web, so that a program that waits for the other side
// to speak first is reset at once; on 80 and 443 the gateway tells the reason.
func (r Routes) Handler(c *gateway.Caller, to gateway.Target) gateway.Handler {
	if h, ok := r.Own[to.Host]; ok {
		if to.Port != 80 {
			return nil
		}
		return h
	}
	if c.Model.Name != "" && to.Host == gateway.ProviderHost(c.Model.Provider) {
		if to.Port != 443 {
			return nil
		}
		return r.Provider
	}
	if !policy.WebPort(to.Port) {
		q := policy.Query{Action: policy.Connect, Host: to.Host, Port: to.Port}
		if c.Policy.Decide(q).Verdict != cofferdam.Allowed {
			return nil
		}
	}
	return r.Others
}

// Refusal implements Router.
func (r Routes) Refusal() gateway.Handler { return r.Refused }
