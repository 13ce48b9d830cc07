package cli

import (
	"cmp"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
	"cofferdam/internal/config"
)

func newLogin(a *app) *cobra.Command {
	var organization, enroll string
	var browser, device bool
	c := &cobra.Command{
		Use: "login [NAME]", Short: "Sign in with your password, or choose one", Args: cobra.MaximumNArgs(1),
		Long: "Sign in at a server. Your password, and the code of your application if you have one, are asked for at a terminal; the token that comes of it is good for " +
			"12 hours and kept in a file that only you can read, one for each server. --oidc signs in with a browser at the identity provider that the server names, --oidc --device with a browser of another machine. " +
			"--enroll adds a password, an application for codes, a passkey of your browser, or your account there; each after the first needs a proof by one before it. The user who runs the server need not sign in: its socket knows them." + calling(9),
		Example: "  cofferdam login ann\n  cofferdam login --enroll totp",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := answers{a}.attend("signing in", "cofferdam login")
			switch {
			case err != nil:
				return err
			case enroll != "" && len(args) > 0, browser && len(args) > 0, browser && enroll != "":
				return usage(c, "one of NAME, --enroll and --oidc is meant")
			case device && !browser:
				return usage(c, "--device is a way to sign in with --oidc")
			case device:
				return a.signInByDevice(c)
			case enroll == "oidc":
				return answers{a}.bind(c, cl)
			case browser:
				return a.signInByBrowser(c)
			case enroll != "":
				return answers{a}.enroll(c, cl, enroll)
			}
			r := cofferdam.LoginRequest{Organization: organization}
			if len(args) > 0 {
				r.Name = args[0]
			} else {
				fmt.Fprint(a.Out, "Name: ")
				if r.Name, err = a.readLine(c.Context()); err != nil {
					return err
				}
			}
			return a.signIn(c, r)
		},
	}
	c.Flags().StringVar(&organization, "organization", "", "of another organisation than the server's own")
	c.Flags().Var(&choice{to: &enroll, of: []string{"password", "totp", "passkey", "oidc"}}, "enroll", "add one to your account: password, totp, passkey, or oidc")
	c.Flags().BoolVar(&browser, "oidc", false, "sign in with a browser at the server's identity provider")
	c.Flags().BoolVar(&device, "device", false, "with --oidc: the browser is one of another machine, which is given a code")
	return c
}

// dialUnknown reaches the server as nobody, to sign in. A token of before is not
// brought: it is another person's, or it is over.
func dialUnknown(a *app) (cl *client.Client, server string, err error) {
	conf, err := a.clientConfig()
	if err != nil {
		return nil, "", err
	}
	cl, err = client.New(client.Options{Server: conf.Server})
	return cl, conf.Server, err
}

// signIn asks for password and code and keeps the token.
func (a *app) signIn(c *cobra.Command, r cofferdam.LoginRequest) error {
	cl, server, err := dialUnknown(a)
	if err != nil {
		return err
	}
	if r.Password, err = a.secretLine(c, "Password: "); err != nil {
		return err
	}
	if r.Code, err = a.secretLine(c, "Code, if you have an application for codes: "); err != nil {
		return err
	}
	login, err := cl.SignIn(c.Context(), r)
	if err != nil {
		return err
	}
	return keepLogin(a, server, login)
}

func newLogout(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End your login here", Args: none,
		Long: "End the token that cofferdam login got, at the server and in the file it was kept in." + calling(), Example: "  cofferdam logout",
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := a.clientConfig()
			if err != nil {
				return err
			}
			path := config.LoginFile(conf.Server, a.Getenv)
			token, err := config.ReadToken(path)
			if err != nil {
				return cofferdamError("signing out", "you are not signed in at "+conf.Server, "there is nothing to end")
			}
			cl, err := client.New(client.Options{Server: conf.Server, Token: token})
			if err != nil {
				return err
			}
			// One that has ended already needs no end.
			if err := cl.SignOut(c.Context()); err != nil && cofferdam.KindOf(err) != cofferdam.Unauthenticated {
				return err
			}
			if err := os.Remove(path); err != nil {
				return cofferdamError("file "+path, plain(err), "remove it")
			}
			a.say("signed out of %s", conf.Server)
			return nil
		},
	}
}

// enroll adds a factor to the caller's account.
func (a answers) enroll(c *cobra.Command, cl *client.Client, kind string) error {
	r := cofferdam.EnrollRequest{Kind: kind, Name: "terminal"}
	have, err := cl.Factors(c.Context())
	if err != nil {
		return err
	}
	if kind == "passkey" { // a browser makes it first: proofs do not keep for as long as that takes
		r.Name = "browser"
		if err := cl.RegisterPasskey(c.Context()); err != nil {
			return err
		}
	}
	if len(have) > 0 {
		if r.Proof, err = a.prove(c, cl); err != nil {
			return err
		}
	}
	if kind == "password" {
		if r.Password, err = a.newPassword(c); err != nil {
			return err
		}
	} else if kind == "totp" {
		self, err := cl.Self(c.Context())
		if err != nil {
			return err
		}
		r.Name, r.Secret = "application", newCodeSecret()
		fmt.Fprintf(a.Out, "Give this to your application for codes:\n  %s\n", otpAddress(self.Name, r.Secret))
		if r.Code, err = a.secretLine(c, "Its code now: "); err != nil {
			return err
		}
	}
	f, err := cl.Enroll(c.Context(), r)
	if err != nil {
		return err
	}
	if a.json {
		return a.object(f)
	}
	a.say("added %s %s", f.Kind, f.ID)
	return nil
}

// newPassword asks twice.
func (a answers) newPassword(c *cobra.Command) (string, error) {
	password, err := a.secretLine(c, "New password: ")
	if err != nil {
		return "", err
	}
	again, err := a.secretLine(c, "Again: ")
	if err == nil && password != again {
		err = &cofferdam.Error{Op: "cli.Prove", Kind: cofferdam.Invalid, Subject: "password", Reason: "the two are not the same; nothing was changed", Hint: "try again"}
	}
	return password, err
}

// newCodeSecret is 20 bytes of chance. Source: RFC 4226, section 4, R6.
func newCodeSecret() string {
	var b [20]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// otpAddress is the address that applications for codes take.
func otpAddress(account, secret string) string {
	q := url.Values{"secret": {secret}, "issuer": {"cofferdam"}, "period": {"30"}, "digits": {"6"}, "algorithm": {"SHA1"}}
	return (&url.URL{Scheme: "otpauth", Host: "totp", Path: "/cofferdam:" + cmp.Or(account, "you"), RawQuery: q.Encode()}).String()
}

// keptLogin returns the token of a login at a server; "" if there is none.
func (a *app) keptLogin(server string) string {
	path := config.LoginFile(server, a.Getenv)
	if path == "" {
		return ""
	}
	token, err := config.ReadToken(filepath.Clean(path))
	if err != nil {
		return "" // the server says that nobody is signed in
	}
	return token
}
