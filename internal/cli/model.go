package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newModel(a *app) *cobra.Command {
	return newNoun("model", "Say which model providers agents may call", newModelAdd(a), newModelList(a), newModelView(a), newModelRemove(a))
}

func newModelAdd(a *app) *cobra.Command {
	var r cofferdam.ModelRequest
	var file string
	c := &cobra.Command{
		Use: "add NAME", Short: "Register a model provider with its key", Args: exactly("NAME"),
		Long: "Register a model provider. The key is read from standard input, or from --key-file, sealed, attached by the model gateway, and " +
			"never enters a box. Plain http is taken on loopback only." + calling(),
		Example: "  cofferdam model add anthropic < key.txt\n  cofferdam model add work --provider anthropic --url https://models.example.com --key-file key.txt",
		RunE: func(c *cobra.Command, args []string) error {
			r.Name = args[0]
			if r.Provider == "" {
				r.Provider = "anthropic" // the one there is
			}
			key, err := a.readSecret(file, "key")
			if err != nil {
				return err
			}
			r.Key = key
			cl, err := a.dial()
			if err != nil {
				return err
			}
			m, err := cl.AddModel(c.Context(), r)
			if err != nil {
				return err
			}
			return added(a, m, m.Name, "added model "+m.Name+" at "+m.URL+rehearses(m))
		},
	}
	c.Flags().StringVar(&r.Provider, "provider", "", "anthropic (default)")
	c.Flags().StringVar(&r.URL, "url", "", "address (default: the provider's own)")
	c.Flags().BoolVar(&r.Rehearsal, "rehearsal", false, "label it: its answers come from a script, not from a model")
	c.Flags().StringVar(&file, "key-file", "-", "file with the key; - is stdin")
	return c
}

func rehearses(m cofferdam.Model) string {
	if m.Rehearsal {
		return " (rehearsal: a script, not a model)"
	}
	return ""
}

func newModelList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List model providers", Args: none, Long: "List model providers." + calling(), Example: "  cofferdam model list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Models(c.Context())
			if err != nil {
				return err
			}
			return items(a, "cofferdam/model-list/v1", all, func(m cofferdam.Model) string { return string(m.ID) }, []string{"MODEL", "PROVIDER", "REHEARSAL", "URL", "AGE"},
				func(m cofferdam.Model) []string {
					return []string{m.Name, m.Provider, strconv.FormatBool(m.Rehearsal), m.URL, age(m.Created)}
				})
		}),
	}
}

func newModelView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view MODEL", Short: "Show a model provider", Args: exactly("MODEL"), Long: "Show a model provider. Its key is never shown." + calling(), Example: "  cofferdam model view anthropic",
		RunE: viewed(a, (*client.Client).Model, func(m cofferdam.Model) []label {
			return []label{{"model", m.Name + rehearses(m)}, {"id", string(m.ID)}, {"provider", m.Provider}, {"url", m.URL}, {"key", "sealed"}, {"created", stamp(m.Created)}}
		}),
	}
}

func newModelRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove MODEL", Aliases: []string{"rm"}, Short: "Forget a model provider and its key", Args: exactly("MODEL"),
		Long: "Forget a model provider and its key." + calling(), Example: "  cofferdam model remove anthropic",
		RunE: a.removing("model", (*client.Client).RemoveModel),
	}
}
