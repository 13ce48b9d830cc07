package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"cofferdam/internal/config"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: none, Long: "Print the version." + exits(0, 2), Example: "  cofferdam version --json",
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.object(struct {
					Schema   string `json:"schema"`
					Version  string `json:"version"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{"cofferdam/version/v1", config.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintln(a.Out, "cofferdam "+config.Version)
			return err
		},
	}
}

func newCompletion(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print the completion script of bash, zsh, fish or powershell", Args: exactly("SHELL"), ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Long: "Print the completion script of bash, zsh, fish or powershell." + exits(0, 2), Example: "  cofferdam completion bash > /etc/bash_completion.d/cofferdam",
		RunE: func(c *cobra.Command, args []string) error { return complete(c, args[0], a) },
	}
}

func complete(c *cobra.Command, shell string, a *app) error {
	switch shell {
	case "bash":
		return c.Root().GenBashCompletionV2(a.Out, true)
	case "zsh":
		return c.Root().GenZshCompletion(a.Out)
	case "fish":
		return c.Root().GenFishCompletion(a.Out, true)
	case "powershell":
		return c.Root().GenPowerShellCompletionWithDesc(a.Out)
	}
	return usage(c, "no completion for "+quoted(shell)+": bash, zsh, fish or powershell")
}
