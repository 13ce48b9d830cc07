package cli

import (
	"slices"
	"strconv"
	"strings"

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
	var alias []string
	c := &cobra.Command{
		Use: "add NAME", Short: "Register a model provider with its key", Args: exactly("NAME"),
		Long: "Register a model provider. The key is read from standard input, or from --key-file, sealed, attached by the model gateway, and " +
			"never enters a box. The provider is the protocol that its server speaks: a server that is compatible with one has that one. Plain http " +
			"is taken on loopback only." + calling(),
		Example: "  cofferdam model add anthropic < key.txt\n" +
			"  cofferdam model add work --provider openai --url https://models.example.com/v1 --key-file key.txt --allow 'gpt-5*'\n" +
			"  cofferdam model add local --provider openai --url http://127.0.0.1:11434/v1 --no-key --default qwen3",
		RunE: func(c *cobra.Command, args []string) error {
			if r.NoKey && c.Flags().Changed("key-file") {
				return usage(c, "--key-file and --no-key exclude each other")
			}
			r.Name = args[0]
			if r.Provider == "" {
				r.Provider = namedAfter(r.Name)
			}
			var err error
			if r.Alias, err = aliases(alias); err != nil {
				return err
			}
			if !r.NoKey {
				if r.Key, err = a.readSecret(file, "key", "cofferdam model add "+r.Name+" < key.txt; or say --no-key, if the server asks for none"); err != nil {
					return err
				}
			}
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
	f := c.Flags()
	f.StringVar(&r.Provider, "provider", "", "protocol: anthropic, openai or gemini (default: the one NAME is, else anthropic)")
	f.StringVar(&r.URL, "url", "", "address (default: the provider's own)")
	f.StringVar(&r.Default, "default", "", "id of the model that agents are told to use (default: their own choice)")
	f.StringSliceVar(&r.Allow, "allow", nil, "ids of the models that may be asked for; a * at the end stands for the rest (default: any)")
	f.StringSliceVar(&alias, "alias", nil, "ASKED=ID: the provider is asked for ID instead")
	f.StringSliceVar(&r.Fallback, "fallback", nil, "models of the same protocol that are tried next, in order")
	f.BoolVar(&r.KeepText, "keep-text", false, "put prompts and answers on record in full, not only by hash")
	f.BoolVar(&r.Rehearsal, "rehearsal", false, "label it: its answers come from a script, not from a model")
	f.StringVar(&file, "key-file", "-", "file with the key; - is stdin")
	f.BoolVar(&r.NoKey, "no-key", false, "the server asks for none")
	return c
}

// namedAfter is the protocol of a model whose name is one.
func namedAfter(name string) string {
	switch name {
	case "openai", "gemini":
		return name
	}
	return "anthropic"
}

// aliases reads ASKED=ID pairs.
func aliases(pairs []string) (map[string]string, error) {
	var all map[string]string
	for _, p := range pairs {
		asked, id, ok := strings.Cut(p, "=")
		if _, twice := all[asked]; !ok || twice {
			return nil, &cofferdam.Error{
				Op: "cli.model", Kind: cofferdam.Invalid, Subject: "alias " + strconv.Quote(p), Reason: "is not ASKED=ID, each ASKED once",
				Hint: "such as --alias small=claude-haiku-4-5",
			}
		}
		if all == nil {
			all = map[string]string{}
		}
		all[asked] = id
	}
	return all, nil
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
			key, text := "sealed", "by hash"
			if m.NoKey {
				key = "none"
			}
			if m.KeepText {
				text = "in full"
			}
			return []label{
				{"model", m.Name + rehearses(m)},
				{"id", string(m.ID)},
				{"provider", m.Provider},
				{"url", m.URL},
				{"key", key},
				{"default", m.Default},
				{"allowed", strings.Join(m.Allow, " ")},
				{"aliases", strings.Join(pairs(m.Alias), " ")},
				{"fallback", strings.Join(m.Fallback, " ")},
				{"recorded", text},
				{"created", stamp(m.Created)},
			}
		}),
	}
}

func pairs(alias map[string]string) []string {
	var list []string
	for asked, id := range alias {
		list = append(list, asked+"="+id)
	}
	slices.Sort(list)
	return list
}

func newModelRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove MODEL", Aliases: []string{"rm"}, Short: "Forget a model provider and its key", Args: exactly("MODEL"),
		Long: "Forget a model provider and its key." + calling(), Example: "  cofferdam model remove anthropic",
		RunE: a.removing("model", (*client.Client).RemoveModel),
	}
}
