package identity

import (
	"testing"

	"cofferdam/identity/identitytest"
)

const (
	client   = identitytest.Client
	redirect = identitytest.Redirect
)

// op is a provider of OpenID Connect, and forging what it says instead of the truth.
type (
	op      = identitytest.Provider
	forging = identitytest.Forging
)

var signed, unsigned = identitytest.Signed, identitytest.Unsigned

func newOP(t *testing.T) *op {
	t.Helper()
	o := identitytest.NewProvider(t)
	t.Cleanup(o.Close)
	return o
}

// authorize is a browser that signs in, and comes back with a code and a state.
func authorize(t *testing.T, o *op, address, subject string) (code, state string) {
	t.Helper()
	back := o.Authorize(t, address, subject).Query()
	return back.Get("code"), back.Get("state")
}
