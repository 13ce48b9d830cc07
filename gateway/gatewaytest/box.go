package gatewaytest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/netns"
)

// Box is the network of a box without the box: a namespace of its own in which
// programs of this machine run, with the resolver and nothing else.
type Box struct {
	t   testing.TB
	ns  *netns.Namespace
	dir string
	// Env is added to the environment of every command.
	Env []string
}

// NewBox makes a namespace, or skips the test and says why.
func NewBox(t testing.TB) *Box {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: network namespaces and TAP devices")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs TAP devices: " + err.Error())
	}
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "resolv.conf"), "nameserver 10.99.0.1\noptions timeout:2 attempts:5\n")
	write(t, filepath.Join(dir, "hosts"), "127.0.0.1 localhost\n")
	write(t, filepath.Join(dir, "nsswitch.conf"), "hosts: files dns\n")
	return &Box{t: t, ns: ns, dir: dir}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Queue lends a fresh queue of the box's device.
func (b *Box) Queue() *os.File {
	b.t.Helper()
	q, err := b.ns.Queue()
	if err != nil {
		b.t.Fatal(err)
	}
	return q
}

// script runs its arguments in the namespace, with the box's own files in
// place of the machine's.
const script = `set -e
dir=$1; net=$2; shift 2
for f in resolv.conf hosts nsswitch.conf; do mount --bind "$dir/$f" "$(readlink -f /etc/$f)"; done
exec nsenter --net="$net" -- "$@"`

// Command prepares a program to be run in the box's network with a small
// environment and a home of its own.
func (b *Box) Command(ctx context.Context, argv ...string) *exec.Cmd {
	args := append([]string{"--mount", "sh", "-c", script, "sh", b.dir, b.ns.Path()}, argv...)
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Dir = b.t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "LANG=C.UTF-8", "GIT_TERMINAL_PROMPT=0"}, b.Env...)
	cmd.WaitDelay = time.Second
	return cmd
}

// Run runs a program in the box's network for at most 60 s and returns its
// output, both streams together, and how it ended.
func (b *Box) Run(argv ...string) (string, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	cmd := b.Command(ctx, argv...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%v still ran after a minute: %w", argv, err)
	}
	return out.String(), err
}

// Inside runs fn with its thread in the box's network.
func (b *Box) Inside(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the goroutine ends locked, so that its thread is not used again
		target, err := os.Open(b.ns.Path())
		if err != nil {
			done <- err
			return
		}
		defer target.Close()
		if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// Dial connects from inside to an address, which must be literal.
func (b *Box) Dial(network, address string) (conn net.Conn, err error) {
	err = b.Inside(func() error {
		d := net.Dialer{Timeout: 10 * time.Second}
		conn, err = d.Dial(network, address)
		return err
	})
	return conn, err
}

// Lookup asks the wire for the IPv4 addresses of a name.
func (b *Box) Lookup(ctx context.Context, name string) ([]string, error) {
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return b.Dial("udp", "10.99.0.1:53")
	}}
	addrs, err := r.LookupNetIP(ctx, "ip4", name+".")
	var out []string
	for _, a := range addrs {
		out = append(out, a.Unmap().String())
	}
	return out, err
}

// DialName connects from inside to a name.
func (b *Box) DialName(name string, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addrs, err := b.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return b.Dial("tcp", net.JoinHostPort(addrs[0], fmt.Sprint(port)))
}
