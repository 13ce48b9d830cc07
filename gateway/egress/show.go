package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"

	"cofferdam"
	"cofferdam/gateway"
)

// maxAsked bounds the body of a request that a person has to allow: it is held
// whole, so that what they allow is what is sent.
// Source: docs/SPECIFICATION.md, "Approvals".
const maxAsked = 1 << 20

// show returns a request as a person sees it before they allow it: head and
// body. The body is held from then on.
func show(r *http.Request) func(context.Context) (gateway.Shown, error) {
	return func(context.Context) (gateway.Shown, error) {
		head, err := httputil.DumpRequest(r, false)
		if err != nil {
			return gateway.Shown{}, err
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxAsked+1))
		switch {
		case err != nil:
			return gateway.Shown{}, &cofferdam.Error{Op: "egress.Show", Kind: cofferdam.Invalid, Reason: "its body broke off", Err: err}
		case len(body) > maxAsked:
			return gateway.Shown{}, &cofferdam.Error{
				Op: "egress.Show", Kind: cofferdam.Exhausted, Reason: fmt.Sprintf("its body is larger than %d bytes", maxAsked),
				Hint: "send less, or ask a person to allow the host in the policy",
			}
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		if len(body) == 0 {
			r.Body = http.NoBody
		}
		return gateway.Show(append(head, body...), ""), nil
	}
}
