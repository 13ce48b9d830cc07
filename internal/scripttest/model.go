package scripttest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"cofferdam/agent/rehearsal"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRehearse serves the script FILE as a model provider on loopback until the
// end of the script or "rehearse -stop NAME"; NAME, or REHEARSAL, is its URL. A
// provider that was stopped comes back at its old address.
func cmdRehearse(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1 || len(args) == 2, "rehearse FILE|-stop [NAME]")
	name := "REHEARSAL"
	if len(args) == 2 {
		name = args[1]
	}
	b := of(ts)
	if running, ok := b.labs["rehearse "+name]; ok {
		running.stop()
		delete(b.labs, "rehearse "+name)
	}
	if args[0] == "-stop" {
		return
	}
	script, err := rehearsal.Parse(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	address := "127.0.0.1:0"
	if before, ok := strings.CutPrefix(ts.Getenv(name), "http://"); ok {
		address = before
	}
	l, err := net.Listen("tcp", address)
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rehearsal.Serve(ctx, l, script) // the task that needs it fails if it does
	}()
	b.labs["rehearse "+name] = &lab{stop: func() { cancel(); <-done }}
	ts.Setenv(name, "http://"+l.Addr().String())
}

// cmdOperator writes an operator file that lists where this machine's npm
// registry is, which on some networks is a reserved address.
func cmdOperator(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "operator FILE")
	list, err := registryAddresses()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte("[egress]\nallow_addresses = ["+list+"]\n"), 0o600))
}

// registryAddresses returns the addresses of the npm registry as a TOML list's
// inside.
func registryAddresses() (string, error) {
	out, err := exec.Command("npm", "config", "get", "registry").Output()
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(strings.TrimSpace(string(out)), "//")
	host, _, _ := strings.Cut(rest, "/")
	addrs, err := net.DefaultResolver.LookupHost(context.Background(), host)
	if err != nil {
		return "", err
	}
	var list []string
	for _, a := range addrs {
		list = append(list, fmt.Sprintf("%q", net.JoinHostPort(a, "443")))
	}
	return strings.Join(list, ", "), nil
}
