package identity

import "testing"

// Device is an authenticator for tests from outside of this package: it has one
// passkey, for a site as a browser sees it.
type Device struct{ a *authenticator }

// NewDevice returns one for a site.
func NewDevice(t *testing.T, host, origin string) Device {
	t.Helper()
	a := newAuthenticator(t)
	a.host, a.origin = host, origin
	return Device{a}
}

// Register makes the passkey, as a browser is asked to by options.
func (d Device) Register(t *testing.T, options []byte) []byte {
	t.Helper()
	return d.a.register(t, options)
}

// Sign answers a challenge.
func (d Device) Sign(t *testing.T, options []byte) []byte {
	t.Helper()
	return d.a.sign(t, options)
}
