package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newAdmin(a *app) *cobra.Command {
	noun := func(use, short string, verbs ...*cobra.Command) *cobra.Command {
		c := newNoun(use, short, verbs...)
		c.Example = "  cofferdam admin " + use + " " + verbs[0].Name() + " --help"
		return c
	}
	c := newNoun("admin", "Manage organisations, projects, accounts and tokens",
		noun("organization", "Manage the organisations of a server that you run", newOrganizationList(a), newOrganizationAdd(a)),
		noun("project", "Manage the projects of your organisation", newProjectList(a), newProjectAdd(a)),
		noun("user", "Manage who belongs to a project, people and programs", newUserList(a), newUserView(a), newUserAdd(a), newUserRemove(a), newUserReopen(a)),
		noun("token", "Manage tokens, by which programs call the server", newTokenList(a), newTokenCreate(a), newTokenRevoke(a)))
	c.Example = "  cofferdam admin user list"
	return c
}

func newProjectList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the projects that you are in", Args: none,
		Long: "List the projects of your organisation that you have a role in. --project names one of them to any command." + calling(), Example: "  cofferdam admin project list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Projects(c.Context())
			if err != nil {
				return err
			}
			return items(a, "cofferdam/project-list/v1", all, func(p cofferdam.Project) string { return string(p.Project) },
				[]string{"NAME", "ID", "CREATED"}, func(p cofferdam.Project) []string {
					return []string{p.Name, string(p.Project), stamp(p.Created)}
				})
		}),
	}
}

func newProjectAdd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "add NAME", Short: "Make a project", Args: exactly("NAME"),
		Long: "Make a project of your organisation, with repositories, models, tasks and a policy of its own. An owner of the whole organisation does." + calling(), Example: "  cofferdam admin project add web",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			p, err := cl.AddProject(c.Context(), cofferdam.ProjectRequest{Name: args[0]})
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(p)
			}
			a.say("made project %s", p.Name)
			_, err = fmt.Fprintln(a.Out, p.Project)
			return err
		}),
	}
}

// rolesOf are the roles of a member in one cell: ROLE everywhere, ROLE@PROJECT there.
func rolesOf(m cofferdam.Member) string {
	var list []string
	for _, r := range m.Roles {
		role := r.Role
		if r.Project != "" {
			role += "@" + r.Name
		}
		list = append(list, role)
	}
	if !m.Disabled.IsZero() {
		list = append(list, "closed")
	}
	return strings.Join(list, ",")
}

func kindOfMember(m cofferdam.Member) string {
	if m.Service {
		return "program"
	}
	return "person"
}

func newUserList(a *app) *cobra.Command {
	var organization bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List who has a role", Args: none,
		Long: "List who has a role in the project, or with --organization everybody in the organisation. ROLE@PROJECT is for that project, ROLE alone for all." + calling(), Example: "  cofferdam admin user list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Members(c.Context(), level(organization))
			if err != nil {
				return err
			}
			return items(a, "cofferdam/member-list/v1", all, func(m cofferdam.Member) string { return string(m.ID) },
				[]string{"NAME", "KIND", "ROLES", "CREATED"}, func(m cofferdam.Member) []string {
					return []string{m.Name, kindOfMember(m), rolesOf(m), stamp(m.Created)}
				})
		}),
	}
	c.Flags().BoolVar(&organization, "organization", false, "everybody in the organisation")
	return c
}

func newUserView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view [NAME]", Short: "Show an account; without a name your own", Args: cobra.MaximumNArgs(1),
		Long: "Show an account and its roles in the project; without a name your own, which says as whom the server knows you." + calling(), Example: "  cofferdam admin user view",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			var m cofferdam.Member
			var err error
			if len(args) > 0 {
				m, err = cl.Member(c.Context(), args[0])
			} else {
				m, err = cl.Self(c.Context())
			}
			switch {
			case err != nil:
				return err
			case a.json:
				return a.object(m)
			}
			return a.labels([]label{{"name", m.Name}, {"kind", kindOfMember(m)}, {"roles", rolesOf(m)}, {"id", string(m.ID)}})
		}),
	}
}

func newUserAdd(a *app) *cobra.Command {
	var organization, program bool
	var role string
	c := &cobra.Command{
		Use: "add NAME", Short: "Give somebody a role", Args: exactly("NAME"),
		Long: "Give a person, or with --service a program, a role in the project, or with --organization in all of the organisation. An owner does this at a terminal, and proves " +
			"that they are there. Who is new is made; a new person gets an invitation, a token of a day that is good for choosing a password and nothing else." + calling(9),
		Example: "  cofferdam admin user add ann --role author\n  cofferdam admin user add nightly --service --role author",
		RunE: func(c *cobra.Command, args []string) error {
			if role == "" {
				return usage(c, "--role is missing: "+strings.Join(roleNames(), ", "))
			}
			cl, err := answers{a}.attend("giving a role", "cofferdam admin user add")
			if err != nil {
				return err
			}
			r := cofferdam.MemberRequest{Name: args[0], Service: program, Role: role, Level: level(organization)}
			m, err := proved(answers{a}, c, cl, func(p cofferdam.Proof) (cofferdam.MemberAdded, error) {
				r.Proof = p
				return cl.AddMember(c.Context(), r)
			})
			if err != nil {
				return err
			}
			return showAdded(a, m)
		},
	}
	c.Flags().BoolVar(&organization, "organization", false, "in all of the organisation, not in the project alone")
	c.Flags().BoolVar(&program, "service", false, "the account is a program's")
	c.Flags().Var(&choice{to: &role, of: roleNames()}, "role", strings.Join(roleNames(), ", "))
	return c
}

// showAdded shows who has a role now, and the invitation of a person who is new or
// back; a program needs none: its tokens are made for it.
func showAdded(a *app, m cofferdam.MemberAdded) error {
	if a.json {
		return a.object(m)
	}
	a.say("%s is %s", m.Member.Name, rolesOf(m.Member))
	if m.Invitation == "" {
		return nil
	}
	a.say("give %s this token; with it in a file, cofferdam --token-file FILE login --enroll password chooses a password", m.Member.Name)
	_, err := fmt.Fprintln(a.Out, m.Invitation)
	return err
}

// roleNames are the roles, each with what the one before it may.
func roleNames() []string { return []string{"viewer", "author", "reviewer", "operator", "owner"} }

func newUserRemove(a *app) *cobra.Command {
	var organization bool
	c := &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Short: "Take a role away, or close an account", Args: exactly("NAME"),
		Long: "Take somebody's role in the project away, or with --organization close the account: none of its tokens counts any more. An owner does this at a terminal, and " +
			"proves that they are there. The last owner of an organisation stays, and so does who runs the server; cofferdam admin user reopen opens an account again." + calling(9),
		Example: "  cofferdam admin user remove ann",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := answers{a}.attend("removing "+args[0], "cofferdam admin user remove")
			if err != nil {
				return err
			}
			r := cofferdam.MemberRemoval{Level: level(organization)}
			_, err = proved(answers{a}, c, cl, func(p cofferdam.Proof) (none struct{}, err error) {
				r.Proof = p
				return none, cl.RemoveMember(c.Context(), args[0], r)
			})
			if err != nil {
				return err
			}
			return a.removed("user", args[0])
		},
	}
	c.Flags().BoolVar(&organization, "organization", false, "close the account in all of the organisation")
	return c
}

func newUserReopen(a *app) *cobra.Command {
	var organization bool
	var role string
	c := &cobra.Command{
		Use: "reopen NAME", Short: "Open a closed account again", Args: exactly("NAME"),
		Long: "Open an account again that was closed, with a role in the project, or with --organization in all of the organisation. Nothing of before counts: not its other roles, its " +
			"tokens and logins, nor its passwords, codes and passkeys. A person gets an invitation, as who is new does. An owner of the organisation does this at a terminal, and proves " +
			"that they are there." + calling(9),
		Example: "  cofferdam admin user reopen ann --role author",
		RunE: func(c *cobra.Command, args []string) error {
			if role == "" {
				return usage(c, "--role is missing: "+strings.Join(roleNames(), ", "))
			}
			cl, err := answers{a}.attend("opening the account "+args[0], "cofferdam admin user reopen")
			if err != nil {
				return err
			}
			m, err := proved(answers{a}, c, cl, func(p cofferdam.Proof) (cofferdam.MemberAdded, error) {
				return cl.ReopenMember(c.Context(), args[0], cofferdam.MemberReopening{Role: role, Level: level(organization), Proof: p})
			})
			if err != nil {
				return err
			}
			return showAdded(a, m)
		},
	}
	c.Flags().BoolVar(&organization, "organization", false, "in all of the organisation, not in the project alone")
	c.Flags().Var(&choice{to: &role, of: roleNames()}, "role", strings.Join(roleNames(), ", "))
	return c
}
