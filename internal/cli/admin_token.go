package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newTokenList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List tokens, newest first", Args: none,
		Long: "List your tokens, and as an owner those of the project, without their texts, which nobody has any more." + calling(), Example: "  cofferdam admin token list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Tokens(c.Context())
			if err != nil {
				return err
			}
			return items(a, "cofferdam/token-list/v1", all, func(t cofferdam.Token) string { return string(t.ID) },
				[]string{"ID", "HOLDER", "ROLE", "STATE", "USED", "EXPIRES"}, func(t cofferdam.Token) []string {
					used := "never"
					if !t.Used.IsZero() {
						used = stamp(t.Used)
					}
					return []string{string(t.ID), t.Holder, t.Role, stateOfToken(t), used, stamp(t.Expires)}
				})
		}),
	}
}

func stateOfToken(t cofferdam.Token) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked"
	case !time.Now().Before(t.Expires):
		return "over"
	case t.Closed:
		return "account closed"
	case t.Login:
		return "login"
	}
	return "good"
}

func newTokenCreate(a *app) *cobra.Command {
	var organization bool
	var role, holder string
	var verbs []string
	var span time.Duration
	c := &cobra.Command{
		Use: "create", Short: "Make a token and print it, once", Args: none,
		Long: "Make a token of yours, or as an owner one of a program's account, and print it: it is kept as a hash, and nobody can show it again. It is good in the project alone unless " +
			"--organization is given, for at most the role, and its holder's own role counts at each use. You prove at a terminal that you are there." + calling(9),
		Example: "  cofferdam admin token create --role author --for 24h\n  cofferdam admin token create --holder nightly --role author --verb task.run --verb task.view",
		RunE: func(c *cobra.Command, _ []string) error {
			if role == "" {
				return usage(c, "--role is missing: "+strings.Join(roleNames(), ", "))
			}
			cl, err := answers{a}.attend("making a token", "cofferdam admin token create")
			if err != nil {
				return err
			}
			r := cofferdam.TokenRequest{Holder: holder, Role: role, Level: level(organization), Verbs: verbs, Seconds: span.Seconds()}
			login, err := proved(answers{a}, c, cl, func(p cofferdam.Proof) (cofferdam.Login, error) {
				r.Proof = p
				return cl.CreateToken(c.Context(), r)
			})
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(login)
			}
			a.say("token %s of %s, at most %s, until %s", login.Token.ID, login.Token.Holder, login.Token.Role, stamp(login.Token.Expires))
			_, err = fmt.Fprintln(a.Out, login.Text)
			return err
		},
	}
	c.Flags().BoolVar(&organization, "organization", false, "good wherever its holder has a role")
	c.Flags().StringVar(&holder, "holder", "", "the account of a program; without it the token is yours")
	c.Flags().Var(&choice{to: &role, of: roleNames()}, "role", "at most: "+strings.Join(roleNames(), ", "))
	c.Flags().StringSliceVar(&verbs, "verb", nil, "good for this verb alone, such as task.run; several are several flags")
	c.Flags().DurationVar(&span, "for", 0, "how long it is good; 30 days without it, a year at most")
	return c
}

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a token", Args: exactly("ID"),
		Long: "End a token of yours, or as an owner one of the project. It counts no more from then on." + calling(), Example: "  cofferdam admin token revoke k-0123456789abcdef0123456789abcdef",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			if err := cl.RevokeToken(c.Context(), args[0]); err != nil {
				return err
			}
			a.say("revoked %s", args[0])
			return nil
		}),
	}
}
