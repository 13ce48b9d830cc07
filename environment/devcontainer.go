package environment

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cofferdam/sandbox"
)

// refusedKeys are those keys of the development container standard that ask for
// something a box never does, each with the reason.
var refusedKeys = map[string]string{
	"features":                    "they are scripts that a foreign registry would run as root; put what is needed into the image, or into setup of " + RecipePath,
	"overrideFeatureInstallOrder": "there are no features",
	"build":                       "images are not built here; name one that is built",
	"dockerFile":                  "images are not built here; name one that is built",
	"context":                     "images are not built here",
	"dockerComposeFile":           "a box is one machine without others beside it",
	"service":                     "there is no compose file",
	"runServices":                 "there is no compose file",
	"runArgs":                     "they are arguments of a container engine, and there is none",
	"mounts":                      "nothing of the host is mounted into a box",
	"workspaceMount":              "the workspace is a clone that the box makes",
	"workspaceFolder":             "the workspace is always " + sandbox.WorkDir,
	"privileged":                  "no command of a box has privileges",
	"capAdd":                      "no command of a box has capabilities",
	"securityOpt":                 "the walls of a box are not for a repository to choose",
	"init":                        "every box has an init of its own",
	"initializeCommand":           "it would run on the host",
	"postStartCommand":            "a box starts once: use postCreateCommand",
	"postAttachCommand":           "nobody attaches to a box",
	"waitFor":                     "an agent always waits for every command",
	"remoteUser":                  fmt.Sprintf("commands always run as user %d", sandbox.UserID),
	"containerUser":               fmt.Sprintf("commands always run as user %d", sandbox.UserID),
	"updateRemoteUserUID":         fmt.Sprintf("commands always run as user %d", sandbox.UserID),
	"userEnvProbe":                "no shell is asked for variables",
	"overrideCommand":             "the command of an image is never run",
	"shutdownAction":              "a box ends with its session",
	"hostRequirements":            "limits are for the task to give",
	"gpu":                         "a box has no devices",
	"secrets":                     "credentials are attached by the gateways and never enter a box",
	"appPort":                     "nothing of a box is served outside",
}

// ignoredKeys have no effect on what a box is.
var ignoredKeys = []string{"$schema", "name", "forwardPorts", "portsAttributes", "otherPortsAttributes"}

// ParseDevcontainer reads a devcontainer.json: JSON with comments. What of the
// standard is not done here is refused, all of it at once with line and reason;
// what no standard knows is listed apart. The three commands of creation run in
// every new box, in the workspace.
func ParseDevcontainer(path string, text []byte) (Recipe, error) {
	if why := tidyText(text); why != "" {
		return Recipe{}, badRecipe(path, why, nil)
	}
	top, err := parseJSONC(string(text))
	if err != nil {
		return Recipe{}, badRecipe(path, err.Error(), err)
	}
	if top.kind != '{' {
		return Recipe{}, badRecipe(path, fmt.Sprintf("line %d: an object in braces is expected", top.line), nil)
	}
	d := devcontainer{recipe: Recipe{Path: path, MaxAge: DefaultAge, Timeout: DefaultTimeout, Env: map[string]string{}}}
	for _, m := range top.members {
		d.take(m)
	}
	var why []string
	if len(d.refused) > 0 {
		why = append(why, "not done here: "+strings.Join(d.refused, "; "))
	}
	if len(d.unknown) > 0 {
		why = append(why, "unknown: "+strings.Join(d.unknown, "; "))
	}
	if len(d.bad) > 0 {
		why = append(why, "wrong: "+strings.Join(d.bad, "; "))
	}
	for _, name := range createdBy { // in the order of the standard, whatever that of the file
		d.recipe.Maintenance = append(d.recipe.Maintenance, d.commands[name]...)
	}
	d.expand()
	if w := d.recipe.wrong(); w != "" && len(why) == 0 {
		why = append(why, w)
	}
	if len(why) > 0 {
		return Recipe{}, badRecipe(path, strings.Join(why, ". "), nil)
	}
	return d.recipe, nil
}

// createdBy are the commands of a container's creation, in their order.
var createdBy = []string{"onCreateCommand", "updateContentCommand", "postCreateCommand"}

type devcontainer struct {
	recipe                Recipe
	commands              map[string][]Step
	refused, unknown, bad []string
}

func (d *devcontainer) take(m member) {
	if why, ok := refusedKeys[m.key]; ok {
		d.refused = append(d.refused, fmt.Sprintf("line %d, %s: %s", m.line, m.key, why))
		return
	}
	switch {
	case slices.Contains(ignoredKeys, m.key):
		d.recipe.Ignored = append(d.recipe.Ignored, m.key)
	case m.key == "image":
		d.text(m, &d.recipe.Image)
	case m.key == "containerEnv" || m.key == "remoteEnv":
		d.variables(m)
	case slices.Contains(createdBy, m.key):
		if d.commands == nil {
			d.commands = map[string][]Step{}
		}
		d.commands[m.key] = d.command(m)
	case m.key == "customizations":
		d.customizations(m)
	default:
		d.unknown = append(d.unknown, fmt.Sprintf("line %d, %.80q", m.line, m.key))
	}
}

func (d *devcontainer) wrong(line int, key, why string) {
	d.bad = append(d.bad, fmt.Sprintf("line %d, %.80s: %s", line, key, why))
}

func (d *devcontainer) text(m member, to *string) {
	if m.value.kind != '"' {
		d.wrong(m.line, m.key, "text is expected")
		return
	}
	*to = m.value.text
}

// variables takes over an object of texts; null, which would take a variable
// away, is not done. remoteEnv wins, as it is nearer to the commands.
func (d *devcontainer) variables(m member) {
	if m.value.kind != '{' {
		d.wrong(m.line, m.key, "an object of texts is expected")
		return
	}
	for _, v := range m.value.members {
		if v.value.kind != '"' {
			d.wrong(v.line, m.key+"."+v.key, "text is expected")
			continue
		}
		if _, have := d.recipe.Env[v.key]; have && m.key == "containerEnv" {
			continue
		}
		d.recipe.Env[v.key] = v.value.text
	}
}

// command reads the three forms: text for a shell, words without one, and an
// object of either, all of which run at the same time.
func (d *devcontainer) command(m member) []Step {
	switch m.value.kind {
	case '{':
		var all []Step
		for _, each := range m.value.members {
			if each.value.kind == '{' {
				d.wrong(each.line, m.key+"."+each.key, "a text or a list of words is expected")
				continue
			}
			s := d.command(member{key: m.key + "." + each.key, line: each.line, value: each.value})
			for i := range s {
				s[i].Beside = len(all) > 0
			}
			all = append(all, s...)
		}
		return all
	case '"':
		if strings.TrimSpace(m.value.text) == "" {
			return nil // as files made from a template have it
		}
		return []Step{{Name: m.key, Shell: m.value.text}}
	case '[':
		var words []string
		for _, w := range m.value.items {
			if w.kind != '"' {
				d.wrong(w.line, m.key, "a word in quotes is expected")
				return nil
			}
			words = append(words, w.text)
		}
		if len(words) == 0 {
			return nil
		}
		return []Step{{Name: m.key, Argv: words}}
	}
	d.wrong(m.line, m.key, "a text, a list of words or an object of them is expected")
	return nil
}

// customizations are free for every tool; ours may hold allow and ready.
func (d *devcontainer) customizations(m member) {
	if m.value.kind != '{' {
		d.wrong(m.line, m.key, "an object is expected")
		return
	}
	for _, tool := range m.value.members {
		if tool.key != "cofferdam" {
			d.recipe.Ignored = append(d.recipe.Ignored, m.key+"."+tool.key)
			continue
		}
		for _, key := range tool.value.members {
			name := "customizations.cofferdam." + key.key
			switch key.key {
			case "allow":
				d.recipe.Allow = d.list(name, key)
			case "ready":
				d.recipe.Ready = steps("ready", d.list(name, key))
			default:
				d.unknown = append(d.unknown, fmt.Sprintf("line %d, %.80q", key.line, name))
			}
		}
	}
}

func (d *devcontainer) list(name string, m member) (all []string) {
	for _, item := range m.value.items {
		if item.kind != '"' {
			d.wrong(item.line, name, "a text is expected")
			return nil
		}
		all = append(all, item.text)
	}
	if m.value.kind != '[' {
		d.wrong(m.line, name, "a list of texts is expected")
	}
	return all
}

// variable is what the standard replaces in texts.
var variable = regexp.MustCompile(`\$\{(localEnv|env|containerWorkspaceFolder|containerWorkspaceFolderBasename|localWorkspaceFolder|localWorkspaceFolderBasename|devcontainerId)(?::[^:}]*)?(?::([^}]*))?\}`)

// expand replaces variables. What is the host's becomes its default, or
// nothing: no variable and no path of this machine gets into a box. What is the
// container's is replaced when the box is known.
func (d *devcontainer) expand() {
	replace := func(s string) string {
		return variable.ReplaceAllStringFunc(s, func(found string) string {
			part := variable.FindStringSubmatch(found)
			switch part[1] {
			case "containerWorkspaceFolder", "localWorkspaceFolder":
				return sandbox.WorkDir
			case "containerWorkspaceFolderBasename", "localWorkspaceFolderBasename":
				return strings.TrimPrefix(sandbox.WorkDir, "/")
			case "devcontainerId":
				return "cofferdam"
			}
			return part[2]
		})
	}
	for _, name := range slices.Sorted(maps.Keys(d.recipe.Env)) {
		d.recipe.Env[name] = replace(d.recipe.Env[name])
	}
	d.recipe.Image = replace(d.recipe.Image)
	for i, s := range d.recipe.Maintenance {
		s.Shell = replace(s.Shell)
		s.Argv = slices.Clone(s.Argv)
		for j := range s.Argv {
			s.Argv[j] = replace(s.Argv[j])
		}
		d.recipe.Maintenance[i] = s
	}
}
