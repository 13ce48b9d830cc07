package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/internal/config"
)

// browserPatience is how long a browser may take to come back: as long as the
// server waits for it. Source: docs/SPECIFICATION.md, "Identity".
const browserPatience = 10 * time.Minute

// atProvider has a person sign in with a browser and returns what it came back
// with. It comes to a port of this machine, which nobody outside reaches; what it
// brings is worth nothing without the ticket, which never leaves this process but
// to the server.
func (a *app) atProvider(c *cobra.Command, cl *client.Client) (cofferdam.LoginFinish, error) {
	none := cofferdam.LoginFinish{}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return none, cofferdamError("port of this machine", plain(err), "sign in with your password")
	}
	defer l.Close()
	flow, err := cl.BeginSignIn(c.Context(), fmt.Sprintf("http://%s/callback", l.Addr()))
	if err != nil {
		return none, err
	}
	fmt.Fprintf(a.Out, "Sign in with a browser of this machine:\n  %s\n", clean(flow.Address))
	back := make(chan cofferdam.LoginFinish, 1)
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Method != http.MethodGet || r.URL.Path != "/callback" || q.Get("state") == "" {
			http.Error(w, "There is nothing here.", http.StatusNotFound)
			return
		}
		select {
		case back <- cofferdam.LoginFinish{Ticket: flow.Ticket, State: q.Get("state"), Code: q.Get("code")}:
			fmt.Fprintln(w, "That is all. The terminal says whether you are signed in; close this page.")
		default:
			http.Error(w, "That was answered already.", http.StatusConflict)
		}
	})}
	go func() { _ = srv.Serve(l) }() // ends with Close, below
	defer srv.Close()
	ctx, cancel := context.WithTimeout(c.Context(), browserPatience)
	defer cancel()
	select {
	case got := <-back:
		return got, srv.Shutdown(ctx) // the page is told before the port closes
	case <-ctx.Done():
		if c.Context().Err() != nil {
			return none, context.Cause(c.Context())
		}
		return none, &cofferdam.Error{Op: "cli.Login", Kind: cofferdam.Unauthenticated, Subject: "signing in", Reason: "no browser came back within " + browserPatience.String(), Hint: "begin again"}
	}
}

// signInByBrowser signs in at the server's identity provider.
func (a *app) signInByBrowser(c *cobra.Command) error {
	cl, server, err := dialUnknown(a)
	if err != nil {
		return err
	}
	got, err := a.atProvider(c, cl)
	if err != nil {
		return err
	}
	login, err := cl.FinishSignIn(c.Context(), got)
	if err != nil {
		return err
	}
	return keepLogin(a, server, login)
}

// signInByDevice signs in there with a browser of any machine, which is given a code.
func (a *app) signInByDevice(c *cobra.Command) error {
	cl, server, err := dialUnknown(a)
	if err != nil {
		return err
	}
	d, err := cl.BeginDeviceSignIn(c.Context())
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "In a browser of any machine, until %s, open\n  %s\nand give it the code\n  %s\n", d.Expires.Local().Format(time.TimeOnly), clean(d.Address), clean(d.Code))
	wait := time.Duration(d.Seconds * float64(time.Second))
	for {
		a.Sleep(c.Context(), min(max(wait, time.Second), time.Minute))
		if c.Context().Err() != nil {
			return context.Cause(c.Context())
		}
		login, err := cl.FinishDeviceSignIn(c.Context(), d.Ticket)
		var e *cofferdam.Error
		if errors.As(err, &e) && e.Kind == cofferdam.AwaitsPerson { // it ends with the ticket, at the server
			wait = e.After
			continue
		}
		if err != nil {
			return err
		}
		return keepLogin(a, server, login)
	}
}

// keepLogin keeps the token of a login for later commands.
func keepLogin(a *app, server string, login cofferdam.Login) error {
	if err := config.SaveLogin(server, login.Text, a.Getenv); err != nil {
		return err
	}
	a.say("signed in as %s until %s", login.Token.Holder, stamp(login.Token.Expires))
	return nil
}

// bind makes the account at the identity provider one that signs in as the caller.
func (a answers) bind(c *cobra.Command, cl *client.Client) error {
	have, err := cl.Factors(c.Context())
	if err != nil {
		return err
	}
	var proof cofferdam.Proof
	if len(have) > 0 {
		if proof, err = a.prove(c, cl); err != nil {
			return err
		}
	}
	got, err := a.atProvider(c, cl)
	if err != nil {
		return err
	}
	got.Proof = proof
	if err := cl.BindSignIn(c.Context(), got); err != nil {
		return err
	}
	a.say("from now on cofferdam login --oidc signs you in")
	return nil
}
