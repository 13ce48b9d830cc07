package model

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/policy"
)

// upgrades says whether a request asks for a WebSocket, as agents do that would
// rather have one connection for all turns. Nothing that comes through one
// could be judged call by call, so they are told to use HTTP, which they then do.
func upgrades(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Upgrade"), func(v string) bool {
		return slices.ContainsFunc(strings.Split(v, ","), func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "websocket") })
	})
}

// negotiate answers 426. It goes on record as negotiation: asking for another
// protocol is no attempt at anything, and raises no alarm.
func (k *calls) negotiate(w http.ResponseWriter, r *http.Request, p *protocol) {
	act := gateway.Request{
		Source: "model", Kind: cofferdam.EventModelCall, Resource: k.caller.Model.Name,
		Query:  policy.Query{Action: policy.Call, Model: k.caller.Model.Name},
		Fields: map[string]string{"op": "upgrade"},
	}
	err := gateway.Handle(r.Context(), k.caller, act, func(context.Context) (gateway.Outcome, error) {
		return gateway.Outcome{Status: gateway.OK, Fields: map[string]string{"negotiation": "websocket", "status": "426"}}, nil
	})
	w.Header().Set("Connection", "close")
	if err != nil {
		writeError(w, p, err)
		return
	}
	w.Header().Set("Upgrade", "HTTP/1.1") // RFC 9110: what to use instead
	writeStatus(w, p, http.StatusUpgradeRequired, "cofferdam: the model gateway has no WebSocket\nhint: send the same as an HTTP request", false)
}
