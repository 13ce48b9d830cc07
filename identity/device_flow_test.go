package identity

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// begun is a sign-in by device code that has begun, as somebody else sees it.
func begun(t *testing.T, o *OIDC) cofferdam.LoginDevice {
	t.Helper()
	d, err := o.BeginDevice(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A machine without a browser gets a code; whoever gives it to the provider in a
// browser anywhere is signed in, once, and the provider is not asked more often
// than it wants.
func TestDeviceCode(t *testing.T) {
	o, p, c := bound(t)
	ctx := t.Context()
	d := begun(t, o)
	if d.Code == "" || d.Address != p.URL+"/device" || !strings.Contains(d.Complete, d.Code) || d.Seconds != 5 || d.Expires.Sub(c.now) > FlowLife || strings.Contains(d.Complete, d.Ticket) {
		t.Fatalf("%+v, until %s", d, d.Expires)
	}
	asked := 0
	p.Token = func(http.ResponseWriter) bool { asked++; return false }
	waits := func(what string) {
		t.Helper()
		_, text, err := o.FinishDevice(ctx, d.Ticket)
		if text != "" || cofferdam.KindOf(err) != cofferdam.AwaitsPerson {
			t.Errorf("%s: %q %v", what, text, err)
		}
	}
	for range 10 {
		waits("at once")
	}
	if asked != 0 {
		t.Errorf("the provider was asked %d times before its time", asked)
	}
	c.now = c.now.Add(5 * time.Second)
	waits("nobody has given the code")
	waits("again")
	if asked != 1 {
		t.Errorf("the provider was asked %d times", asked)
	}
	if err := p.Store.CompleteDeviceAuthorization(ctx, d.Code, "id1"); err != nil {
		t.Fatal(err)
	}
	waits("too early")
	c.now = c.now.Add(5 * time.Second)
	kept, text, err := o.FinishDevice(ctx, d.Ticket)
	if err != nil || kept.Holder.Name != "ann" || !kept.Login {
		t.Fatalf("%+v %v", kept, err)
	}
	if who, err := o.d.Bearer(ctx, text); err != nil || who.Principal.Name != "ann" {
		t.Errorf("%+v %v", who, err)
	}
	if _, _, err := o.FinishDevice(ctx, d.Ticket); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
		t.Errorf("a ticket counts twice: %v", err)
	}
	if len(o.flows) != 0 {
		t.Errorf("%d flows are left", len(o.flows))
	}
}

// What does not hold signs nobody in, and is over.
func TestDeviceCodesThatDoNotHold(t *testing.T) {
	o, p, c := bound(t)
	ctx := t.Context()
	for name, x := range map[string]struct {
		do    func(d cofferdam.LoginDevice) error
		forge forging
		wait  time.Duration
	}{
		"the person says no":         {do: func(d cofferdam.LoginDevice) error { return p.Store.DenyDeviceAuthorization(ctx, d.Code) }},
		"somebody whom nobody bound": {do: func(d cofferdam.LoginDevice) error { return p.Store.CompleteDeviceAuthorization(ctx, d.Code, "id2") }},
		"late":                       {do: func(d cofferdam.LoginDevice) error { return p.Store.CompleteDeviceAuthorization(ctx, d.Code, "id1") }, wait: FlowLife},
		"another audience":           {do: func(d cofferdam.LoginDevice) error { return p.Store.CompleteDeviceAuthorization(ctx, d.Code, "id1") }, forge: func(p *op, c map[string]any) string { c["aud"] = "other"; return p.Sign(c) }},
		"no token":                   {do: func(d cofferdam.LoginDevice) error { return p.Store.CompleteDeviceAuthorization(ctx, d.Code, "id1") }, forge: func(*op, map[string]any) string { return "" }},
		"of a browser's flow":        {do: func(d cofferdam.LoginDevice) error { return p.Store.CompleteDeviceAuthorization(ctx, d.Code, "id1") }, forge: func(p *op, c map[string]any) string { c["nonce"] = "x"; return p.Sign(c) }},
	} {
		began := c.now
		d := begun(t, o)
		if err := x.do(d); err != nil {
			t.Fatal(err)
		}
		p.Forge = x.forge
		c.now = c.now.Add(5*time.Second + x.wait)
		for range 2 { // once is for all
			if _, text, err := o.FinishDevice(ctx, d.Ticket); text != "" || cofferdam.KindOf(err) != cofferdam.Unauthenticated {
				t.Errorf("%s: %q %v", name, text, err)
			}
		}
		p.Forge, c.now = nil, began
	}
	// A ticket of one way to sign in is none of another.
	d := begun(t, o)
	if _, text, err := o.Finish(ctx, d.Ticket, "", ""); text != "" || cofferdam.KindOf(err) != cofferdam.Unauthenticated {
		t.Errorf("a device's ticket for a browser: %v", err)
	}
	_, ticket, err := o.Begin(ctx, redirect)
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range []string{ticket, "", "x"} {
		if _, _, err := o.FinishDevice(ctx, ticket); cofferdam.KindOf(err) != cofferdam.Unauthenticated {
			t.Errorf("ticket %.4q: %v", ticket, err)
		}
	}
	// The provider wants to be asked less often, or is down: the flow goes on.
	d = begun(t, o)
	says, status := `{"error":"slow_down"}`, 400
	p.Token = func(w http.ResponseWriter) bool {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(says))
		return true
	}
	c.now = c.now.Add(5 * time.Second)
	var e *cofferdam.Error
	if _, _, err := o.FinishDevice(ctx, d.Ticket); cofferdam.KindOf(err) != cofferdam.AwaitsPerson || !asError(err, &e) || e.After != 10*time.Second {
		t.Errorf("slow down: %v", err)
	}
	for _, bad := range []struct {
		status int
		says   string
	}{{500, "<html>"}, {200, "{"}, {502, "{}"}} {
		says, status = bad.says, bad.status
		c.now = c.now.Add(10 * time.Second)
		if _, _, err := o.FinishDevice(ctx, d.Ticket); cofferdam.KindOf(err) != cofferdam.Unavailable {
			t.Errorf("%d %s: %v", bad.status, bad.says, err)
		}
	}
	p.Token = nil
	if err := p.Store.CompleteDeviceAuthorization(ctx, d.Code, "id1"); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(10 * time.Second)
	if _, _, err := o.FinishDevice(ctx, d.Ticket); err != nil {
		t.Errorf("after it was down: %v", err)
	}
}
