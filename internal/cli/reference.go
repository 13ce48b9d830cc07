package cli

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"cofferdam/internal/config"
)

//go:embed units
var units embed.FS

func newReference(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "reference DIR", Short: "Write manual pages, completions, reference and service units", Args: exactly("DIR"),
		Long: "Write manual pages, completions, the reference and service units into a folder." + exits(0, 1, 2), Example: "  cofferdam debug reference build/out",
		RunE: func(c *cobra.Command, args []string) error {
			files, err := reference(c.Root())
			if err != nil {
				return err
			}
			for name, data := range files {
				path := filepath.Join(args[0], name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return cofferdamError("folder "+filepath.Dir(path), plain(err), "choose another")
				}
				if err := os.WriteFile(path, data, 0o644); err != nil {
					return cofferdamError("file "+path, plain(err), "choose another folder")
				}
			}
			a.say("wrote %d files into %s", len(files), args[0])
			return nil
		},
	}
}

// reference makes every generated file from the command table.
func reference(root *cobra.Command) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, make := range map[string]func(io.Writer) error{
		"completion/cofferdam.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"completion/_cofferdam":     root.GenZshCompletion,
		"completion/cofferdam.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"completion/cofferdam.ps1":  root.GenPowerShellCompletionWithDesc,
	} {
		var b bytes.Buffer
		if err := make(&b); err != nil {
			return nil, fmt.Errorf("making %s: %w", name, err)
		}
		files[name] = b.Bytes()
	}
	var all bytes.Buffer
	fmt.Fprintf(&all, "# Command line\n\nMade from the command table by `make assets`.\n")
	eachCommand(root, func(c *cobra.Command) {
		if hiddenCommand(c) {
			return
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		files["man/man1/"+name+".1"] = manPage(c)
		all.Write(markdown(c))
	})
	files["reference/command-line.md"] = all.Bytes()
	list, err := units.ReadDir("units")
	if err != nil {
		return nil, fmt.Errorf("reading units: %w", err)
	}
	for _, f := range list {
		data, err := units.ReadFile("units/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("reading unit %s: %w", f.Name(), err)
		}
		files["systemd/"+f.Name()] = data
	}
	return files, nil
}

func hiddenCommand(c *cobra.Command) bool {
	for ; c != nil; c = c.Parent() {
		if c.Hidden {
			return true
		}
	}
	return false
}

// split parts the long text from the exit codes.
func split(c *cobra.Command) (text, codes string) {
	text, codes, _ = strings.Cut(c.Long, "\n\nExit codes:\n")
	return text, codes
}

func useOf(c *cobra.Command) string {
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		use += " COMMAND"
	}
	return use + " [flags]"
}

func flagsOf(c *cobra.Command, do func(*pflag.Flag)) {
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" { // cobra adds that one when it runs
			do(f)
		}
	})
}

func manPage(c *cobra.Command) []byte {
	var b bytes.Buffer
	text, codes := split(c)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"cofferdam %s\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s\n.SH DESCRIPTION\n%s\n",
		roff(strings.ToUpper(strings.ReplaceAll(c.CommandPath(), " ", "-"))), config.Version, roff(strings.ReplaceAll(c.CommandPath(), " ", "-")), roff(c.Short), roff(useOf(c)), roff(text))
	fmt.Fprint(&b, ".SH OPTIONS\n")
	flagsOf(c, func(f *pflag.Flag) { fmt.Fprintf(&b, ".TP\n%s\n%s\n", roff(flagName(f)), roff(f.Usage)) })
	if c.HasParent() {
		fmt.Fprint(&b, "Flags of every command are in cofferdam(1).\n")
	}
	fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n.SH EXIT STATUS\n.nf\n%s\n.fi\n", roff(c.Example), roff(codes))
	var also []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			also = append(also, strings.ReplaceAll(sub.CommandPath(), " ", "-")+"(1)")
		}
	}
	if c.HasParent() {
		also = append(also, strings.ReplaceAll(c.Parent().CommandPath(), " ", "-")+"(1)")
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roff(strings.Join(also, ", ")))
	return b.Bytes()
}

// roff escapes text for a manual page.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func flagName(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.Value.Type() != "bool" {
		name += " " + strings.ToUpper(f.Value.Type())
	}
	return name
}

func markdown(c *cobra.Command) []byte {
	var b bytes.Buffer
	text, codes := split(c)
	fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), text, useOf(c))
	flagsOf(c, func(f *pflag.Flag) { fmt.Fprintf(&b, "\n- `%s`: %s", flagName(f), f.Usage) })
	fmt.Fprintf(&b, "\n\nExample:\n\n```\n%s\n```\n\nExit codes:\n\n```\n%s\n```\n", c.Example, codes)
	return b.Bytes()
}
