package rehearsal

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// tool is one tool that a request offers.
type tool struct {
	name   string
	kind   toolKind
	code   bool   // takes programs that call Codex's own tools
	schema schema // of its input
}

// toolKind says how a tool is called.
type toolKind int

// The kinds of tools that scripts can call.
const (
	function   toolKind = iota // with an object
	freeform                   // with a text
	localShell                 // Responses: with a command, by a call of its own kind
)

// schema is the part of a JSON schema that we read.
type schema struct {
	Type       any               `json:"type"` // a name or a list of names; Gemini writes capitals
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Enum       []any             `json:"enum"`
	Minimum    float64           `json:"minimum"`
	AnyOf      []schema          `json:"anyOf"`
}

func (s schema) is(name string) bool {
	switch t := s.Type.(type) {
	case string:
		return strings.EqualFold(t, name)
	case []any:
		return slices.ContainsFunc(t, func(v any) bool { text, ok := v.(string); return ok && strings.EqualFold(text, name) })
	}
	return false
}

// smallest is a value that the schema allows. Depth bounds schemas that nest.
func (s schema) smallest(depth int) any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AnyOf) > 0 && depth < 16:
		return s.AnyOf[0].smallest(depth + 1)
	case s.is("string"):
		return "rehearsal"
	case s.is("number"), s.is("integer"):
		return max(1, s.Minimum)
	case s.is("boolean"):
		return false
	case s.is("array"):
		return []any{}
	case s.is("null"):
		return nil
	}
	o := object{}
	if depth < 16 {
		for _, name := range s.Required {
			o[name] = s.Properties[name].smallest(depth + 1)
		}
	}
	return o
}

// The tools that agents offer for one thing, and what they call its arguments.
var (
	shells   = []string{"bash", "shell_command", "exec_command", "shell", "local_shell", "run_shell_command", "execute_command", "run_command", "terminal"}
	commands = []string{"command", "cmd", "script"}
	readers  = []string{"read", "read_file"}
	writers  = []string{"write", "write_file", "create_file"}
	editors  = []string{"edit", "replace", "edit_file", "str_replace"}
	paths    = []string{"file_path", "filePath", "path", "absolute_path", "filename"}
	contents = []string{"content", "contents", "file_text", "text"}
	olds     = []string{"old_string", "oldString", "old", "old_str"}
	news     = []string{"new_string", "newString", "new", "new_str"}
)

// part is one part of an answer on its way out.
type part struct {
	step
	kind  toolKind
	input json.RawMessage // of a function
	free  string          // of a free-form tool
	argv  []string        // of the local shell
}

// parts turns the script's steps into what the request's tools can do.
func (q *question) parts(steps []step) []part {
	var all []part
	for _, s := range steps {
		s.text += strings.Repeat("x", s.huge)
		switch s.verb {
		case "bash":
			all = append(all, q.shell(s.text))
		case "read", "write", "edit":
			all = append(all, q.file(s))
		case "tool":
			all = append(all, q.call(s))
		default:
			all = append(all, part{step: s})
		}
	}
	return all
}

// call is the call of a tool by its name.
func (q *question) call(s step) part {
	p := part{step: s, input: s.input}
	if t, ok := q.find([]string{s.name}); ok && t.kind == localShell {
		var action struct {
			Command []string `json:"command"`
		}
		_ = json.Unmarshal(s.input, &action) // another input is another test's bad input
		p.kind, p.argv = localShell, action.Command
		return p
	}
	if json.Unmarshal(s.input, &p.free) == nil {
		p.kind = freeform
	}
	return p
}

func (q *question) find(names []string) (tool, bool) {
	for _, name := range names {
		for _, t := range q.tools {
			if strings.EqualFold(t.name, name) {
				return t, true
			}
		}
	}
	return tool{}, false
}

// argument is the first of names that the tool has.
func (t tool) argument(names []string) string {
	for _, name := range names {
		if _, ok := t.schema.Properties[name]; ok {
			return name
		}
	}
	return names[0]
}

// with calls the tool with these arguments, and the smallest values for what
// else it requires.
func (t tool) with(args object) part {
	for _, name := range t.schema.Required {
		if _, ok := args[name]; !ok {
			args[name] = t.schema.Properties[name].smallest(0)
		}
	}
	input, err := json.Marshal(args)
	if err != nil {
		panic("encoding strings: " + err.Error()) // cannot happen: strings always encode
	}
	return part{step: step{verb: "tool", name: t.name}, input: input}
}

// shell calls the shell tool that is offered, or one of Claude Code's name.
func (q *question) shell(command string) part {
	argv := []string{"bash", "-lc", command}
	t, ok := q.find(shells)
	if program, is := q.program(); !ok && is {
		return program.run("exec_command", object{"cmd": command}, ".output")
	}
	if !ok {
		t = tool{name: "Bash"}
	}
	switch t.kind {
	case localShell:
		return part{step: step{verb: "tool", name: t.name}, kind: localShell, argv: argv}
	case freeform:
		return part{step: step{verb: "tool", name: t.name}, kind: freeform, free: command}
	}
	name, args := t.argument(commands), object{}
	if args[name] = command; t.schema.Properties[name].is("array") {
		args[name] = argv
	}
	if _, ok := t.schema.Properties["description"]; ok || t.name == "Bash" {
		args["description"] = "a step of the rehearsal"
	}
	return t.with(args)
}

// file reads, writes or edits with the tool for it, a patch, or the shell.
func (q *question) file(s step) part {
	names := map[string][]string{"read": readers, "write": writers, "edit": editors}[s.verb]
	t, ok := q.find(names)
	if patch, is := q.find([]string{"apply_patch"}); !ok && is && s.verb != "read" {
		return patch.patch(s)
	}
	if program, is := q.program(); !ok && is && s.verb != "read" {
		return program.run("apply_patch", patchFor(s), "")
	}
	if !ok || t.kind != function {
		return q.shell(commandFor(s))
	}
	args := object{t.argument(paths): q.complete(s.name)}
	switch s.verb {
	case "write":
		args[t.argument(contents)] = s.text
	case "edit":
		args[t.argument(olds)], args[t.argument(news)] = s.text, s.with
	}
	return t.with(args)
}

// patchFor writes or edits by a patch of the kind that Codex has.
func patchFor(s step) string {
	lines := func(mark, text string) string {
		return mark + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+mark) + "\n"
	}
	body := "*** Add File: " + s.name + "\n" + lines("+", s.text)
	if s.verb == "edit" {
		body = "*** Update File: " + s.name + "\n@@\n" + lines("-", s.text) + lines("+", s.with)
	}
	return "*** Begin Patch\n" + body + "*** End Patch\n"
}

// program is the tool that takes programs, if one is offered.
func (q *question) program() (tool, bool) {
	i := slices.IndexFunc(q.tools, func(t tool) bool { return t.code })
	if i < 0 {
		return tool{}, false
	}
	return q.tools[i], true
}

// run is a program that calls one of the tools that only programs can call, and
// tells the given part of its result.
func (t tool) run(name string, input any, result string) part {
	text := fmt.Sprintf("const r = await tools.%s(%s); text(r%s)", name, encode(input), result)
	return part{step: step{verb: "tool", name: t.name}, kind: freeform, free: text}
}

// patch calls a tool that takes patches.
func (t tool) patch(s step) part {
	text := patchFor(s)
	if t.kind == freeform {
		return part{step: step{verb: "tool", name: t.name}, kind: freeform, free: text}
	}
	return t.with(object{t.argument([]string{"input", "patch", "patchText"}): text})
}

// commandFor does with the shell what no tool is offered for. An edit that does
// not find its text exits with 1.
func commandFor(s step) string {
	name := quote(s.name)
	switch s.verb {
	case "read":
		return "cat " + name
	case "write":
		return fmt.Sprintf("mkdir -p %s && printf %%s %s > %s", quote(path.Dir(s.name)), quote(s.text), name)
	}
	return fmt.Sprintf(`OLD=%s NEW=%s perl -0777 -i -pe 's/\Q$ENV{OLD}\E/$ENV{NEW}/ and $n++; END { $? = !$n }' %s`, quote(s.text), quote(s.with), name)
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
