package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newOrganizationList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the organisations of a server that you run", Args: none,
		Long: "List the organisations of a server. Only its own user may, or root, on its socket or with its own token." + calling(), Example: "  cofferdam admin organization list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Organizations(c.Context())
			if err != nil {
				return err
			}
			return items(a, "cofferdam/organization-list/v1", all, func(o cofferdam.Organization) string { return string(o.ID) },
				[]string{"NAME", "ID", "CREATED"}, func(o cofferdam.Organization) []string {
					return []string{o.Name, string(o.ID), stamp(o.Created)}
				})
		}),
	}
}

func newOrganizationAdd(a *app) *cobra.Command {
	var owner string
	c := &cobra.Command{
		Use: "add NAME", Short: "Make an organisation with an owner", Args: exactly("NAME"),
		Long: "Make an organisation of a server that you run, with a project, default, and a person who owns it. Nothing of one organisation is seen in another. You do this at a terminal, " +
			"and prove that you are there. The owner gets an invitation, a token of a day that is good for choosing a password and nothing else; the same command again invites an owner anew " +
			"who has not chosen any yet." + calling(9),
		Example: "  cofferdam admin organization add acme --owner ann",
		RunE: func(c *cobra.Command, args []string) error {
			if owner == "" {
				return usage(c, "--owner is missing: the name of the person who owns it")
			}
			cl, err := answers{a}.attend("making an organisation", "cofferdam admin organization add")
			if err != nil {
				return err
			}
			r := cofferdam.OrganizationRequest{Name: args[0], Owner: owner}
			o, err := proved(answers{a}, c, cl, func(p cofferdam.Proof) (cofferdam.OrganizationAdded, error) {
				r.Proof = p
				return cl.AddOrganization(c.Context(), r)
			})
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(o)
			}
			a.say("made organisation %s, which %s owns", o.Organization.Name, o.Owner)
			a.say("give %s this token; with it in a file, cofferdam --token-file FILE login --enroll password chooses a password, and cofferdam login --organization %s %s signs in", o.Owner, o.Organization.Name, o.Owner)
			_, err = fmt.Fprintln(a.Out, o.Invitation)
			return err
		},
	}
	c.Flags().StringVar(&owner, "owner", "", "name of the person who owns it")
	return c
}
