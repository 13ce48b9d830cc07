package scripttest

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdForge starts a git host on loopback for HOST, with TLS as labtls has it: git's own
// http-backend over the bare repositories in DIR, for who comes as robot with PASSWORD.
// NAME.log has a line for each request: the status that it was answered with, or "git", method and path.
func cmdForge(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 4, "forge NAME HOST DIR PASSWORD")
	b, name := of(ts), args[0]
	if b.authority == nil {
		var err error
		b.authority, err = newAuthority()
		ts.Check(err)
		ts.Check(b.authority.publish(ts))
	}
	cert, err := b.authority.issue(args[1:2])
	ts.Check(err)
	program, err := exec.LookPath("git")
	ts.Check(err)
	seen, err := os.Create(filepath.Join(b.work, name+".log"))
	ts.Check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	backend := &cgi.Handler{Path: program, Args: []string{"http-backend"}, InheritEnv: []string{"PATH"}, Logger: log.New(io.Discard, "", 0), Env: []string{
		"GIT_PROJECT_ROOT=" + ts.MkAbs(args[2]), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=robot", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	var mu sync.Mutex // one line after the other
	note := func(what string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(seen, what, r.Method, r.URL.Path)
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}},
		ErrorLog:          log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, ok := r.BasicAuth(); !ok || user != "robot" || password != args[3] {
				note("401", r)
				w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			note("git", r)
			body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20)) // CGI has no pieces
			if err != nil {
				return
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
			backend.ServeHTTP(w, r)
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // until it is closed
	b.labs[name] = &lab{stop: func() { server.Close(); seen.Close() }}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	ts.Setenv(name+"_PORT", port)
}
