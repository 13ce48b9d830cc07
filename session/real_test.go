package session_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/agent/rehearsal"
	"cofferdam/gateway"
	"cofferdam/gateway/egress"
	"cofferdam/gateway/git"
	"cofferdam/gateway/model"
	"cofferdam/gateway/wire"
	"cofferdam/internal/config"
	"cofferdam/sandbox"
	"cofferdam/sandbox/gvisor"
	"cofferdam/sandbox/sandboxtest"
	"cofferdam/session"
)

// providerKey is what the model gateway attaches.
const providerKey = "sk-provider-key-outside-the-box"

// repair is what the rehearsal answers: it looks, tries two ways out, mends.
const repair = "key " + providerKey + `
after mended
say The sum is right now.

after REFUSED
bash echo '1 + 1 = 2' > calc.txt && git commit -qam 'mend the sum' && echo mended

turn 1
say I look around.
bash env | grep -c ` + providerKey + `; curl -sS -m 20 http://unlisted.example.com/; curl -sS -m 5 http://192.0.2.1/; git commit -q --allow-empty -m first; git push -q origin HEAD:refs/heads/main; echo REFUSED
`

// allReal is a bench in which nothing stands in for anything but the provider:
// gVisor boxes, the user-space network, all gateways. Only the keeper's socket
// is missing between this process and the driver.
func allReal(t *testing.T) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("installs a package: not with -short")
	}
	for _, path := range []string{"/dev/net/tun", "/etc/ssl/certs/ca-certificates.crt"} {
		if _, err := os.Stat(path); err != nil {
			t.Skip("needs " + path)
		}
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm: install it with apt-get install npm")
	}
	b := newBench(t, nil)
	driver := gvisorDriver(t)
	repos := openRepos(t, filepath.Join(b.dir, "repos"))
	dialer := &gateway.Dialer{Allow: reserved(t)}
	gate := git.New(git.Options{Repos: repos, Dialer: dialer})
	ca, err := egress.OpenCA(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	out := egress.New(egress.Options{Dialer: dialer, CA: ca})
	models := model.New(model.Options{Dialer: dialer, Attach: func(_ context.Context, _ cofferdam.Model, h http.Header) error {
		h.Set("X-Api-Key", providerKey)
		return nil
	}})
	roots, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		t.Fatal(err)
	}
	trust, err := ca.Trust(roots)
	if err != nil {
		t.Fatal(err)
	}
	b.change = func(o *session.Options) {
		o.Driver, o.Tier, o.Connect = driver, sandbox.GVisor, nil
		o.Router = wire.Routes{
			Own:    map[cofferdam.Host]gateway.Handler{gateway.GitHost: gate, gateway.ModelHost: models},
			Others: out, Refused: out.Refusal(),
		}
		o.CloneURL, o.Resolve, o.ReadFile = git.CloneURL, gate.Resolve, repos.ReadFile
		o.Presets = config.Presets(context.Background(), config.Config{}, config.ThisMachine())
		o.Env = append(config.Variables(context.Background(), config.ThisMachine()), egress.TrustEnv()...)
		for _, f := range trust {
			o.Trust = append(o.Trust, sandbox.File{Path: f.Path, Data: f.Data, Link: f.Link, Shared: true})
		}
	}
	b.restart()
	if err := gate.Sync(context.Background(), b.repo); err != nil {
		t.Fatal(err)
	}
	return b
}

func gvisorDriver(t *testing.T) *gvisor.Driver {
	t.Helper()
	root, err := os.MkdirTemp("", "cd-") // short: there are sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := sandboxtest.Build(root, "cofferdam-runsc", "cofferdam-init"); err != nil {
		t.Fatal(err)
	}
	d, err := gvisor.New(gvisor.Options{
		Root: filepath.Join(root, "s"), Runsc: filepath.Join(root, "cofferdam-runsc"), Init: filepath.Join(root, "cofferdam-init"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// reserved lists the addresses of the npm registry if this network leads them
// to reserved ones, as an operator then has to.
func reserved(t *testing.T) []netip.Prefix {
	t.Helper()
	var list []netip.Prefix
	for _, host := range config.Presets(context.Background(), config.Config{}, config.ThisMachine())["npm"] {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = host
		}
		addrs, err := (&gateway.Dialer{}).Lookup(context.Background(), name, 443)
		if err != nil {
			t.Fatal(err)
		}
		for a, refused := range addrs {
			if refused != nil {
				list = append(list, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return list
}

// TestClaudeInARealBox plays a whole work session, then its proof.
func TestClaudeInARealBox(t *testing.T) {
	b := allReal(t)
	script, err := rehearsal.Parse(strings.NewReader(repair))
	if err != nil {
		t.Fatal(err)
	}
	provider := httptest.NewServer(script.Handler())
	t.Cleanup(provider.Close)
	p := b.claude()
	p.Model = cofferdam.Model{Name: "rehearsal", Provider: "anthropic", URL: provider.URL, Rehearsal: true}
	p.Branch, p.Request.Timeout = "refs/heads/cofferdam/t-7-1", 120
	begun := time.Now()
	r := b.run(p)
	t.Logf("work took %v", time.Since(begun).Round(time.Millisecond))
	if r.Failure != "" || r.Head == "" || r.Box.Tier != "gvisor" || r.Usage.ModelCalls < 3 || r.Usage.OutputTokens == 0 {
		t.Errorf("%+v", r)
		b.show(p)
		return
	}
	rules := map[string]int{}
	for _, e := range b.events(p) {
		if e.Verdict == cofferdam.Refused {
			rules[e.Kind]++
		}
		for _, v := range e.Fields {
			if strings.Contains(v, providerKey) && e.Kind != cofferdam.EventAgentTool && e.Kind != cofferdam.EventExecOutput {
				t.Errorf("the key is in event %d: %v", e.Seq, e)
			}
		}
	}
	if rules[cofferdam.EventPush] != 1 || rules[cofferdam.EventDNS]+rules[cofferdam.EventRequest] < 1 {
		t.Errorf("refused: %v", rules)
		b.show(p)
	}
	proof := b.proof(r.Head, "grep -q '1 + 1 = 2' calc.txt", "test $(id -u) = 1000")
	if r := b.run(proof); len(r.Checks) != 2 || r.Checks[0].Exit != 0 || r.Checks[1].Exit != 0 {
		t.Errorf("%+v", r)
		b.show(proof)
	}
}

// show logs what happened.
func (b *bench) show(p session.Plan) {
	b.t.Helper()
	for _, e := range b.events(p) {
		b.t.Logf("%3d %s %s %s %s %s %.600q", e.Seq, e.Kind, e.Resource, e.Verdict, e.Outcome, e.Reason, e.Fields["text"])
	}
}

// TestAnotherProcessInARealBox cuts the process while the box waits for
// something from outside: the next one has to serve the wire, with the names
// that the first one gave out, and to go on reading.
func TestAnotherProcessInARealBox(t *testing.T) {
	b := allReal(t)
	p := b.plan(`getent hosts git.cofferdam.internal | cut -d' ' -f1 > first; echo begin
		until git ls-remote origin refs/heads/go | grep -q go; do sleep 0.2; done
		getent hosts git.cofferdam.internal | cut -d' ' -f1 | cmp - first && echo same address; echo end`)
	ctx, cancel := context.WithCancelCause(context.Background())
	done := b.start(ctx, p)
	b.until(p, "agent", "begin")
	cancel(errCut)
	if got := <-done; got.err == nil {
		t.Fatalf("the first process: %+v", got.result)
	}
	b.restart()
	b.git("-C", b.repo.Upstream, "update-ref", "refs/heads/go", string(b.base))
	r := b.run(p)
	if out := b.output(p, "agent", "stdout"); r.Failure != "" || r.Head == "" || out != "begin\nsame address\nend\n" {
		t.Errorf("%q %+v", out, r)
		b.show(p)
	}
}
