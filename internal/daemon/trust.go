package daemon

import (
	"os"

	"cofferdam"
	"cofferdam/sandbox"
)

// rootsFile is where Debian and Ubuntu keep the roots that the machine trusts.
const rootsFile = "/etc/ssl/certs/ca-certificates.crt"

// trusted returns the files by which programs in boxes trust the gateways. The
// machine's roots come from SSL_CERT_FILE where it is set, as the gateways
// themselves read it.
func (s *server) trusted() ([]sandbox.File, error) {
	path := os.Getenv("SSL_CERT_FILE")
	if path == "" {
		path = rootsFile
	}
	roots, err := os.ReadFile(path)
	if err != nil {
		return nil, &cofferdam.Error{Op: "daemon.attach", Kind: cofferdam.Unavailable, Subject: "file " + path, Hint: "apt-get install ca-certificates", Err: err}
	}
	list, err := s.ca.Trust(roots)
	if err != nil {
		return nil, err
	}
	var files []sandbox.File
	for _, f := range list {
		files = append(files, sandbox.File{Path: f.Path, Data: f.Data, Link: f.Link, Shared: true})
	}
	return files, nil
}
