package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newRepo(a *app) *cobra.Command {
	return newNoun("repo", "Say which repositories tasks may work on", newRepoAdd(a), newRepoList(a), newRepoView(a), newRepoRemove(a))
}

func newRepoAdd(a *app) *cobra.Command {
	var r cofferdam.RepoRequest
	var file string
	c := &cobra.Command{
		Use: "add NAME UPSTREAM", Short: "Register a repository", Args: exactly("NAME", "UPSTREAM"),
		Long: "Register a repository: the absolute path of a bare one on the server, or an https URL. A password or token for https is read " +
			"from a file or standard input, sealed, and never enters a box." + calling(),
		Example: "  cofferdam repo add shop /srv/git/shop.git\n  cofferdam repo add shop https://git.example.com/shop.git --user bot --credential-file token.txt",
		RunE: func(c *cobra.Command, args []string) error {
			r.Name, r.Upstream = args[0], upstream(args[1])
			if r.User != "" && file == "" {
				return usage(c, "--user needs --credential-file FILE, or - for standard input")
			}
			if file != "" {
				value, err := a.readSecret(file, "credential", "cofferdam repo add "+args[0]+" "+args[1]+" --credential-file token.txt")
				if err != nil {
					return err
				}
				r.Credential = value
			}
			cl, err := a.dial()
			if err != nil {
				return err
			}
			repo, err := cl.AddRepo(c.Context(), r)
			if err != nil {
				return err
			}
			return added(a, repo, repo.Name, fmt.Sprintf("added repository %s, base branch %s", repo.Name, strings.TrimPrefix(string(repo.Base), "refs/heads/")))
		},
	}
	c.Flags().StringVar(&r.Base, "base", "", "branch that tasks start from and land on (default: the one HEAD names)")
	c.Flags().StringVar(&r.User, "user", "", "user name for https")
	c.Flags().StringVar(&file, "credential-file", "", "file with the password or token for https; - is stdin")
	return c
}

// upstream makes a folder that is named from here an absolute path: over a unix
// socket the server is on the same machine. The server judges what it gets.
func upstream(name string) string {
	if filepath.IsAbs(name) || strings.Contains(name, ":") {
		return name
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return name
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return name
	}
	return abs
}

// added prints a thing that was registered.
func added(a *app, v any, name, sentence string) error {
	if a.json {
		return a.object(v)
	}
	a.say("%s", sentence)
	_, err := fmt.Fprintln(a.Out, clean(name))
	return err
}

// maxSecret is the server's bound on a secret.
const maxSecret = 64 << 10

// readSecret reads a secret from a file or stdin. There is no flag that takes
// the value: it would show in the process list and in the shell's history.
func (a *app) readSecret(path, noun, how string) (cofferdam.Sensitive, error) {
	if path == "-" && a.Terminal(a.In) {
		return "", cofferdamError(noun, "would be shown while it is typed", "give it in a file, or through a pipe: "+how)
	}
	text, err := a.readText(path, maxSecret)
	if err != nil {
		return "", err
	}
	text = strings.TrimRight(text, "\r\n")
	if text == "" {
		return "", cofferdamError(noun, "is empty", "give it in a file, or through a pipe: "+how)
	}
	return cofferdam.Sensitive(text), nil
}

func newRepoList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List repositories", Args: none, Long: "List repositories." + calling(), Example: "  cofferdam repo list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			all, err := cl.Repos(c.Context())
			if err != nil {
				return err
			}
			return items(a, "cofferdam/repo-list/v1", all, func(r cofferdam.Repo) string { return string(r.ID) }, []string{"REPO", "BASE", "UPSTREAM", "AGE"},
				func(r cofferdam.Repo) []string {
					return []string{r.Name, strings.TrimPrefix(string(r.Base), "refs/heads/"), r.Upstream, age(r.Created)}
				})
		}),
	}
}

func newRepoView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view REPO", Short: "Show a repository", Args: exactly("REPO"), ValidArgsFunction: a.completeRepos,
		Long: "Show a repository, by name or id." + calling(), Example: "  cofferdam repo view shop",
		RunE: viewed(a, (*client.Client).Repo, func(r cofferdam.Repo) []label {
			return []label{{"repository", r.Name}, {"id", string(r.ID)}, {"upstream", r.Upstream}, {"base", string(r.Base)}, {"user", r.User}, {"created", stamp(r.Created)}}
		}),
	}
}

func newRepoRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "remove REPO", Aliases: []string{"rm"}, Short: "Forget a repository", Args: exactly("REPO"), ValidArgsFunction: a.completeRepos,
		Long: "Forget a repository and its credential. Its upstream is not touched." + calling(), Example: "  cofferdam repo remove shop",
		RunE: a.removing("repository", (*client.Client).RemoveRepo),
	}
}

// removed says what is gone.
func (a *app) removed(noun, name string) error {
	if a.json {
		return a.object(struct {
			Schema  string `json:"schema"`
			Removed string `json:"removed"`
		}{"cofferdam/removed/v1", name})
	}
	a.say("removed %s %s", noun, name)
	return nil
}

// completeTasks offers the names of tasks, if the server answers.
func (a *app) completeTasks(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(args, func(cl *client.Client) (names []string, err error) {
		all, err := cl.Tasks(c.Context(), client.TaskFilter{Limit: 20})
		for _, t := range all {
			names = append(names, t.Short()+"\t"+clean(cut(t.Request.Text, 40)))
		}
		return names, err
	})
}

func (a *app) completeRepos(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(args, func(cl *client.Client) (names []string, err error) {
		all, err := cl.Repos(c.Context())
		for _, r := range all {
			names = append(names, r.Name)
		}
		return names, err
	})
}

func (a *app) complete(args []string, names func(*client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cl, err := a.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := names(cl)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
