package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
)

// Authenticator is a device with one passkey, and the browser before it. Its CBOR
// is the few fixed forms that a registration has.
type Authenticator struct {
	Key    *ecdsa.PrivateKey
	ID     []byte
	Count  uint32
	Flags  byte   // present 0x01, verified 0x04
	Origin string // as the browser sees it
	Host   string
}

// NewAuthenticator returns one for a site.
func NewAuthenticator(t T, host, origin string) *Authenticator {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var id [16]byte
	rand.Read(id[:]) // never fails since Go 1.24
	return &Authenticator{Key: key, ID: id[:], Flags: 0x05, Origin: origin, Host: host}
}

var b64 = base64.RawURLEncoding

// seen is what the browser says that it saw.
func (a *Authenticator) seen(t T, kind string, options []byte) []byte {
	var o struct {
		PublicKey struct {
			Challenge        string `json:"challenge"`
			UserVerification string `json:"userVerification"`
		} `json:"publicKey"`
	}
	if err := json.Unmarshal(options, &o); err != nil || o.PublicKey.Challenge == "" {
		t.Fatalf("%s: %v", options, err)
	}
	data, err := json.Marshal(map[string]any{"type": kind, "challenge": o.PublicKey.Challenge, "origin": a.Origin, "crossOrigin": false})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return data
}

// data is what the device signs beside: the site, its flags and its counter.
func (a *Authenticator) data(flags byte) []byte {
	a.Count++
	sum := sha256.Sum256([]byte(a.Host))
	return binary.BigEndian.AppendUint32(append(sum[:], flags), a.Count)
}

// Register makes the passkey and answers as a browser does.
func (a *Authenticator) Register(t T, options []byte) []byte {
	public, err := a.Key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatalf("%v", err)
	}
	auth := append(a.data(a.Flags|0x40), make([]byte, 16)...)
	auth = append(binary.BigEndian.AppendUint16(auth, uint16(len(a.ID))), a.ID...)
	auth = append(auth, 0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20)
	auth = append(append(append(auth, public[1:33]...), 0x22, 0x58, 0x20), public[33:]...)
	object := append([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58"), byte(len(auth)))
	return a.answer(t, map[string]string{"attestationObject": b64.EncodeToString(append(object, auth...)), "clientDataJSON": b64.EncodeToString(a.seen(t, "webauthn.create", options))})
}

// Sign answers a challenge.
func (a *Authenticator) Sign(t T, options []byte) []byte {
	client, auth := a.seen(t, "webauthn.get", options), a.data(a.Flags)
	sum := sha256.Sum256(client)
	digest := sha256.Sum256(append(append([]byte{}, auth...), sum[:]...))
	sig, err := ecdsa.SignASN1(rand.Reader, a.Key, digest[:])
	if err != nil {
		t.Fatalf("%v", err)
	}
	return a.answer(t, map[string]string{"authenticatorData": b64.EncodeToString(auth), "clientDataJSON": b64.EncodeToString(client), "signature": b64.EncodeToString(sig)})
}

func (a *Authenticator) answer(t T, response map[string]string) []byte {
	text, err := json.Marshal(map[string]any{"id": b64.EncodeToString(a.ID), "rawId": b64.EncodeToString(a.ID), "type": "public-key", "response": response})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return text
}
