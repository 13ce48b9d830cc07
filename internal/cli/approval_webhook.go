package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newApprovalBind(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "bind SYSTEM NAME", Short: "Say what a chat system calls you", Args: exactly("SYSTEM", "NAME"),
		Long: "Bind what a system that brings answers calls you, such as a chat bot's number for you, to your account: from then on answers that it brings in " +
			"that name are yours. The operator registers systems. You do this at a terminal and prove with a password or a code that you are there." + calling(9),
		Example: "  cofferdam approval bind chat U024BE7LH",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := answers{a}.attend("binding "+args[1], "cofferdam approval bind")
			if err != nil {
				return err
			}
			r := cofferdam.WebhookBinding{System: args[0], Person: args[1]}
			if err := a.labels([]label{{"system", r.System}, {"calls you", r.Person}}); err != nil {
				return err
			}
			if r.Proof, err = (answers{a}).prove(c, cl); err != nil {
				return err
			}
			if err := cl.BindWebhook(c.Context(), r); err != nil {
				return err
			}
			a.say("answers that %s brings of %s are yours", r.System, r.Person)
			return nil
		},
	}
}

func newApprovalWebhook(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "webhook", Short: "Make another secret for notices of questions", Args: none,
		Long: "Make another secret, by which the receiver of the operator's webhook can tell that a notice is this server's, and print it. It is not shown again. The " +
			"one before signs beside it for a day." + calling(), Example: "  cofferdam approval webhook",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			s, err := cl.RotateWebhook(c.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.object(s)
			}
			_, err = fmt.Fprintln(a.Out, clean(s.Secret))
			return err
		}),
	}
}
