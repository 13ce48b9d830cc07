package gateway

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"cofferdam"
)

// Local is a wire without packets: what runs in this process on behalf of a
// session (the brain of our own agent) reaches the gateways through it exactly
// as a box does, and with no other right. find is the Handler of a wire.Router.
// The caller closes idle connections; all end with c.Live.
func Local(c *Caller, find func(*Caller, Target) Handler) *http.Transport {
	return &http.Transport{
		DisableCompression: true,
		MaxConnsPerHost:    4,
		IdleConnTimeout:    time.Minute,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, portText, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			port, err := strconv.ParseUint(portText, 10, 16)
			if err != nil {
				return nil, err
			}
			to := Target{Host: cofferdam.ParseHost(host), Port: uint16(port)}
			h := find(c, to)
			if h == nil {
				return nil, &cofferdam.Error{
					Op: "gateway.Local", Kind: cofferdam.NotFound, Subject: "connection to " + addr,
					Reason: "no gateway serves it", Hint: "the model gateway is at http://" + string(ModelHost),
				}
			}
			ours, theirs := net.Pipe()
			go h.Serve(c, theirs, to) // owns theirs; ends with the connection or c.Live
			return ours, nil
		},
	}
}
