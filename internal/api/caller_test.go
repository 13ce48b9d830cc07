package api_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cofferdam"
	"cofferdam/internal/api"
	"cofferdam/internal/service"
)

func TestAuthentication(t *testing.T) {
	h, _ := world(t)
	header := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del(name)
			for _, v := range values {
				r.Header.Add(name, v)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"no token":         {header("Authorization"), 401},
		"empty token":      {header("Authorization", "Bearer "), 401},
		"wrong token":      {header("Authorization", "Bearer "+strings.Repeat("c", 64)), 401},
		"prefix":           {header("Authorization", "Bearer "+token[:63]), 401},
		"longer":           {header("Authorization", "Bearer "+token+"a"), 401},
		"basic":            {header("Authorization", "Basic "+token), 401},
		"two":              {header("Authorization", "Bearer "+token, "Bearer "+token), 401},
		"right":            {header("Authorization", "Bearer "+token), 200},
		"test person":      {header("Authorization", "Bearer "+testToken), 200},
		"page":             {header("Origin", "http://127.0.0.1:7420"), 403},
		"page, null":       {header("Origin", "null"), 403},
		"fetch":            {header("Sec-Fetch-Site", "cross-site"), 403},
		"rebound name":     {func(r *http.Request) { r.Host = "evil.test:7420" }, 403},
		"other address":    {func(r *http.Request) { r.Host = "10.0.0.1:7420" }, 403},
		"localhost":        {func(r *http.Request) { r.Host = "localhost:7420" }, 200},
		"loopback of IPv6": {func(r *http.Request) { r.Host = "[::1]:7420" }, 200},
	} {
		if w, p := do(t, h, "GET", "/v1/status", "", c.change); w.Code != c.status {
			t.Errorf("%s: %d %+v, want %d", name, w.Code, p, c.status)
		}
	}
	// Without a test person its token is nobody's, and an empty one as well.
	svc := service.New(service.NewMemory().Options(cofferdam.Scope{}))
	plain := api.New(svc, api.Options{Log: slog.New(slog.DiscardHandler), Auth: api.Auth{UID: os.Getuid()}})
	for _, value := range []string{"Bearer " + testToken, "Bearer ", "Bearer"} {
		if w, _ := do(t, plain, "GET", "/v1/status", "", header("Authorization", value)); w.Code != 401 {
			t.Errorf("%q on a server without tokens: %d", value, w.Code)
		}
	}
	w, _ := do(t, h, "POST", "/v1/repos", shop)
	if w.Code != 201 {
		t.Fatal(w.Body)
	}
	w, _ = do(t, h, "POST", "/v1/tasks", work, header("Authorization", "Bearer "+testToken))
	var made cofferdam.Task
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || made.By != (cofferdam.Principal{Kind: cofferdam.TestPerson, Name: "tess"}) {
		t.Errorf("the test person is not labelled: %+v %v", made.By, err)
	}
}

// serveUnix runs the server on a real socket.
func serveUnix(t *testing.T, h *api.Server) (path string, stop func() error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cfd-api") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s.sock")
	l, err := api.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, l) }()
	stop = func() error { cancel(); return <-done }
	t.Cleanup(func() { cancel() })
	return path, stop
}

func unixClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

func TestUnixSocketKnowsItsCaller(t *testing.T) {
	h, _ := world(t)
	path, stop := serveUnix(t, h)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket is %v %v", info.Mode(), err)
	}
	c := unixClient(path)
	resp, err := c.Post("http://cofferdam/v1/repos", "application/json", strings.NewReader(shop))
	if err != nil || resp.StatusCode != 201 {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
	resp, err = c.Post("http://cofferdam/v1/tasks", "application/json", strings.NewReader(work))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var made cofferdam.Task
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || made.By.Kind != cofferdam.Person || made.By.Name == "" {
		t.Errorf("%+v %v", made.By, err)
	}
	if _, err := api.ListenUnix(path); cofferdam.KindOf(err) != cofferdam.Conflict {
		t.Errorf("a second server on the socket: %v", err)
	}
	c.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// In a user namespace the server's user is uid 0, and is called by the name that it
// has outside, on the socket and with the token.
func TestCallerInUserNamespace(t *testing.T) {
	auth := api.Auth{UID: os.Getuid(), Name: "ada", Token: token}
	svc := service.New(service.NewMemory().Options(cofferdam.Scope{}))
	h := api.New(svc, api.Options{Log: slog.New(slog.DiscardHandler), Auth: auth})
	path, _ := serveUnix(t, h)
	if w, _ := do(t, h, "POST", "/v1/repos", shop); w.Code != 201 {
		t.Fatal(w.Body)
	}
	resp, err := unixClient(path).Post("http://cofferdam/v1/tasks", "application/json", strings.NewReader(work))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var onSocket, byToken cofferdam.Task
	if err := json.NewDecoder(resp.Body).Decode(&onSocket); err != nil {
		t.Fatal(err)
	}
	w, _ := do(t, h, "POST", "/v1/tasks", work)
	if err := json.Unmarshal(w.Body.Bytes(), &byToken); err != nil {
		t.Fatal(err)
	}
	ada := cofferdam.Principal{Kind: cofferdam.Person, Name: "ada"}
	if onSocket.By != ada || byToken.By != ada {
		t.Errorf("called %s on the socket, %s by token", onSocket.By, byToken.By)
	}
}

// Another user of the machine, even one who can reach the socket, is refused.
func TestUnixSocketRefusesOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it calls as another user")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	h, _ := world(t)
	path, _ := serveUnix(t, h)
	for file, mode := range map[string]os.FileMode{filepath.Dir(path): 0o755, path: 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(curl, "-sS", "--unix-socket", path, "http://cofferdam/v1/status")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	var p problem
	if err != nil || json.Unmarshal(out, &p) != nil || p.Status != 403 || p.Kind != "forbidden" {
		t.Errorf("user 65534 got %s (%v)", out, err)
	}
}

func TestListenUnix(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ListenUnix(file); cofferdam.KindOf(err) != cofferdam.Invalid {
		t.Errorf("a file in its place: %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "precious" {
		t.Error("the file was touched")
	}
	if _, err := api.ListenUnix(filepath.Join(dir, "no", "such", "s")); cofferdam.KindOf(err) != cofferdam.Unavailable {
		t.Errorf("no folder: %v", err)
	}
}

func TestNewToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := api.NewToken(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	data, _ := os.ReadFile(path)
	if err != nil || info.Mode().Perm() != 0o600 || string(data) != got+"\n" || len(got) != 64 {
		t.Errorf("%v %q %v", info.Mode(), data, err)
	}
}
