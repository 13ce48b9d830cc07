package egress

import (
	"bytes"
	"crypto/sha1" // OpenSSL names the files of a folder by it; nothing is protected by it
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"

	"software.sslmate.com/src/go-pkcs12"
)

// TrustPath is where a box finds the certificates to trust, PEM.
const TrustPath = "/etc/cofferdam/trust.pem"

// TrustFile is one file by which programs in a box come to trust the
// authority: bytes, or a link to another of them.
type TrustFile struct {
	Path string
	Data []byte
	Link string
}

// trustLinks are where systems keep their roots as one file: Debian and
// Alpine; OpenSSL's own default; Fedora, twice; SUSE. All lead to TrustPath, so
// that also programs that start without our variables trust the authority.
var trustLinks = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/ca-bundle.pem",
}

// javaPath is the default trust store of Debian's Java and of those that follow
// it; others are told by -Djavax.net.ssl.trustStore.
const javaPath = "/etc/ssl/certs/java/cacerts"

// chromiumPaths are folders of managed settings: Chromium, Chrome, and the
// builds of Chrome that browser tests use.
var chromiumPaths = []string{"/etc/chromium/policies/managed", "/etc/opt/chrome/policies/managed", "/etc/opt/chrome_for_testing/policies/managed"}

// TrustEnv are the variables by which languages and tools that look at no file
// of the system find TrustPath.
func TrustEnv() []string {
	names := []string{
		"SSL_CERT_FILE",                      // OpenSSL, Go, Python, Ruby, PHP, uv, rustls-native-certs
		"CURL_CA_BUNDLE",                     // curl with another default
		"GIT_SSL_CAINFO",                     // git
		"NODE_EXTRA_CA_CERTS",                // Node, Bun
		"NPM_CONFIG_CAFILE",                  // npm, which does not use Node's
		"REQUESTS_CA_BUNDLE",                 // Python requests
		"PIP_CERT",                           // pip, which brings roots of its own
		"CARGO_HTTP_CAINFO",                  // cargo
		"DENO_CERT",                          // Deno
		"AWS_CA_BUNDLE",                      // AWS command line and SDKs
		"PERL_LWP_SSL_CA_FILE",               // Perl's LWP
		"HEX_CACERTS_PATH",                   // Elixir's Hex
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", // gcloud
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",   // gRPC in C++, Python, Ruby
		"NIX_SSL_CERT_FILE",                  // Nix
	}
	for i, n := range names {
		names[i] = n + "=" + TrustPath
	}
	return names
}

// Trust returns the files by which a box trusts the authority beside the roots
// of this machine, PEM.
func (c *CA) Trust(roots []byte) ([]TrustFile, error) {
	bundle := append(append(bytes.Clone(roots), '\n'), c.PEM()...)
	files := []TrustFile{{Path: TrustPath, Data: bundle}}
	for _, path := range trustLinks {
		files = append(files, TrustFile{Path: path, Link: TrustPath})
	}
	hash, err := subjectHash(c.cert)
	if err != nil {
		return nil, err
	}
	// Python and others look into the folder, where a name is a hash.
	own := "/etc/ssl/certs/" + hash + ".0"
	files = append(files, TrustFile{Path: own, Data: c.PEM()})
	store, err := javaStore(bundle)
	if err != nil {
		return nil, err
	}
	files = append(files, TrustFile{Path: javaPath, Data: store}, TrustFile{Path: "/etc/cofferdam/trust.p12", Link: javaPath})
	// Source: the policy CACertificates, base64 of DER.
	managed, err := json.Marshal(map[string][]string{"CACertificates": {base64.StdEncoding.EncodeToString(c.cert.Raw)}})
	if err != nil {
		return nil, err
	}
	for _, dir := range chromiumPaths {
		files = append(files, TrustFile{Path: dir + "/cofferdam.json", Data: managed})
	}
	return files, nil
}

// javaStore is a trust store without a password: Java opens its default one
// with none.
func javaStore(bundle []byte) ([]byte, error) {
	var list []pkcs12.TrustStoreEntry
	for rest := bundle; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			continue // the machine's other programs skip it too
		}
		list = append(list, pkcs12.TrustStoreEntry{Cert: cert, FriendlyName: fmt.Sprintf("cofferdam-%d", len(list))})
	}
	return pkcs12.Passwordless.EncodeTrustStoreEntries(list, "")
}

// subjectHash names a certificate in a folder of roots. Source: X509_NAME_hash
// of OpenSSL 1.0 and later: the first four bytes, little-endian, of SHA-1 over
// the name in canonical form, which is each relative name as DER with its text
// as UTF-8, in lower case and with single spaces.
func subjectHash(cert *x509.Certificate) (string, error) {
	var name pkix.RDNSequence
	if _, err := asn1.Unmarshal(cert.RawSubject, &name); err != nil {
		return "", fmt.Errorf("reading the authority's name: %w", err)
	}
	var canonical []byte
	for _, rdn := range name {
		var set []attribute
		for _, a := range rdn {
			text := strings.ToLower(strings.Join(strings.Fields(fmt.Sprint(a.Value)), " "))
			set = append(set, attribute{a.Type, asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte(text)}})
		}
		der, err := asn1.MarshalWithParams(set, "set")
		if err != nil {
			return "", fmt.Errorf("writing the authority's name: %w", err)
		}
		canonical = append(canonical, der...)
	}
	sum := sha1.Sum(canonical)
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sum[:])), nil
}

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}
