package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/identity"
	"cofferdam/internal/service"
)

// Auth says who may call. A unix socket's caller is who the kernel says it is;
// everybody else brings a bearer token. There is no listener without one of
// the two.
type Auth struct {
	UID   int    // of the server; this user and root are people
	Name  string // of that user, where passwd has another for UID: in a user namespace; "" for passwd's
	Token string // of the loopback listener, that person's
	// TestToken authenticates TestPerson; both are "" unless the server was
	// started with a test person.
	TestToken, TestPerson string
}

// projectHeader names the project that a request is about.
const projectHeader = "Cofferdam-Project"

// acting returns who sent r, and in which project they act.
func (a Auth) acting(r *http.Request, svc *service.Service) (service.Acting, error) {
	c, err := a.caller(r, svc)
	if err != nil {
		return service.Acting{}, err
	}
	names := r.Header.Values(projectHeader)
	if len(names) > 1 || len(names) == 1 && (names[0] == "" || len(names[0]) > 300) {
		return service.Acting{}, invalid(projectHeader, "is not the name of one project", "name one, or none if you are in one alone")
	}
	return svc.In(r.Context(), c, strings.Join(names, ""))
}

// caller returns who sent r.
func (a Auth) caller(r *http.Request, svc *service.Service) (identity.Caller, error) {
	none := identity.Caller{}
	if err := fromBrowser(r); err != nil {
		return none, err
	}
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		token, ok := strings.CutPrefix(values[0], "Bearer ")
		switch {
		case len(values) > 1 || !ok:
			return none, unauthenticated("the Authorization header is no single bearer token")
		case same(token, a.TestToken) && a.TestPerson != "":
			return svc.Tester(a.TestPerson), nil
		case same(token, a.Token):
			return svc.Local(r.Context(), a.nameOf(a.UID))
		}
		return svc.Bearer(r.Context(), token)
	}
	peer, ok := r.Context().Value(peerKey{}).(peer)
	if !ok || !peer.unix {
		return none, unauthenticated("a request over TCP needs a token")
	}
	if peer.err != nil {
		return none, unauthenticated("the kernel does not say who is calling")
	}
	if peer.uid != 0 && peer.uid != a.UID {
		return none, &cofferdam.Error{
			Op: "api.Principal", Kind: cofferdam.Forbidden, Subject: "user id " + strconv.Itoa(peer.uid), Reason: "may not use this server",
			Hint: "call it as root or as the server's own user, for example with sudo",
		}
	}
	return svc.Local(r.Context(), a.nameOf(peer.uid))
}

// fromBrowser refuses pages: no page of ours calls the API, and a foreign page
// that found the port (also by rebinding a name) must not.
func fromBrowser(r *http.Request) error {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return &cofferdam.Error{Op: "api.Principal", Kind: cofferdam.Forbidden, Subject: "request of a web page", Reason: "pages may not call the API", Hint: "use the cofferdam command"}
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if host == "" || host == "localhost" || host == "cofferdam" || err == nil && ip.IsLoopback() {
		return nil
	}
	return &cofferdam.Error{Op: "api.Principal", Kind: cofferdam.Forbidden, Subject: "host " + visible(host), Reason: "is not this server's name", Hint: "call 127.0.0.1 or localhost"}
}

func unauthenticated(reason string) error {
	return &cofferdam.Error{Op: "api.Principal", Kind: cofferdam.Unauthenticated, Subject: "request", Reason: reason}
}

// same compares in constant time; an empty token matches nothing.
func same(given, want string) bool {
	if want == "" {
		return false
	}
	g, w := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(g[:], w[:]) == 1
}

// nameOf names a user of this machine by its passwd entry.
func (a Auth) nameOf(uid int) string {
	name := "uid-" + strconv.Itoa(uid)
	if a.Name != "" && uid == a.UID {
		name = a.Name
	} else if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && u.Username != "" {
		name = u.Username
	}
	return name
}

// Runners names the accounts of who may call over the socket.
func (a Auth) Runners() []string { return []string{a.nameOf(a.UID), a.nameOf(0)} }

// runs says whether a source is the user who runs the server, or root.
func (a Auth) runs(source string) bool { return source == uidSource(0) || source == uidSource(a.UID) }

type peerKey struct{}

type peer struct {
	unix bool
	uid  int
	err  error
}

// withPeer keeps who the kernel says is calling, and where from.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	ctx = withSource(ctx, conn)
	if b, ok := conn.(*boundedConn); ok {
		conn = b.Conn
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peerOf(c))
}

// peerOf asks the kernel whose the other end of a connection is.
func peerOf(c *net.UnixConn) peer {
	p := peer{unix: true}
	raw, err := c.SyscallConn()
	if err == nil {
		var cred *unix.Ucred
		var sockErr error
		err = raw.Control(func(fd uintptr) { cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
		if err == nil {
			err = sockErr
		}
		if err == nil {
			p.uid = int(cred.Uid)
		}
	}
	p.err = err
	return p
}

// NewToken makes a token and writes it into a file that only its owner can read.
func NewToken(path string) (string, error) {
	var b [32]byte
	rand.Read(b[:]) // never fails since Go 1.24
	token := hex.EncodeToString(b[:])
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("making token file: %w", err)
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", fmt.Errorf("making token file: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return "", fmt.Errorf("making token file: %w", err)
	}
	return token, nil
}

// ListenUnix opens the API's socket: its folder is for the owner only, and a
// socket that nobody answers on is replaced.
func ListenUnix(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, &cofferdam.Error{Op: "api.ListenUnix", Kind: cofferdam.Conflict, Subject: "socket " + path, Reason: "another server answers there", Hint: "stop it, or choose another with --socket"}
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, &cofferdam.Error{Op: "api.ListenUnix", Kind: cofferdam.Invalid, Subject: "socket " + path, Reason: "something else is there", Hint: "move it away, or choose another with --socket"}
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing dead socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, &cofferdam.Error{Op: "api.ListenUnix", Kind: cofferdam.Unavailable, Subject: "socket " + path, Hint: "make its folder, or choose another with --socket", Err: err}
	}
	// Who may connect is judged by SO_PEERCRED; the mode keeps others away as well.
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("closing socket to others: %w", err)
	}
	return l, nil
}
