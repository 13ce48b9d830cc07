package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// Bounds of the tools.
const (
	// MaxOutput is what Hands keep of each stream of a command, in bytes: a file
	// that can be edited is not larger.
	MaxOutput = 1 << 20
	// maxShown is what the model is shown of one result, in bytes.
	maxShown      = 32 << 10
	shellTimeout  = 2 * time.Minute // of a command that names none
	longestShell  = 30 * time.Minute
	fileTimeout   = time.Minute
	maxShell      = 64 << 10 // bytes of a command, which is a box's own bound
	maxPath       = 4096
	defaultLines  = 500  // that read shows
	mostLines     = 5000 // that read can be asked for
	mostMatches   = 200  // that search shows
	longestMatch  = 300  // bytes of a line that search shows
	maxPatternLen = 4096
)

// tool is one thing that the hands can do. The parameters are texts, numbers
// or booleans.
type tool struct {
	Name, About string
	params      []param
	use         func(ctx context.Context, h hand, in input) (done, error)
}

type param struct {
	name, kind, about string
	optional          bool
}

// schema is the tool's JSON schema.
func (t tool) schema() object {
	properties, required := object{}, []string{}
	for _, p := range t.params {
		properties[p.name] = object{"type": p.kind, "description": p.about}
		if !p.optional {
			required = append(required, p.name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// input is what a call gave, checked against the parameters.
type input struct {
	text   map[string]string
	number map[string]int
}

// hand runs the commands of one call; their ids follow from it.
type hand struct {
	hands Hands
	id    cofferdam.ExecID
}

// done is what a tool has to say: first the platform, then the box.
type done struct {
	head, text string
	failed     bool
	path       string // of a file that was changed
}

func wrong(format string, args ...any) done {
	return done{head: fmt.Sprintf(format, args...), failed: true}
}

// read checks a call's input. What is wrong is for the model to mend.
func (t tool) read(c call) (input, string) {
	in := input{text: map[string]string{}, number: map[string]int{}}
	if c.Broken != "" {
		return in, "the input of this call was not used: " + c.Broken
	}
	var given map[string]json.RawMessage
	if json.Unmarshal([]byte(c.Input), &given) != nil {
		return in, "the input of this call is not a JSON object"
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(t.params, func(p param) bool { return p.name == name }) {
			return in, fmt.Sprintf("%s takes no %.64q", t.Name, name)
		}
	}
	for _, p := range t.params {
		raw, ok := given[p.name]
		if !ok || string(raw) == "null" {
			if !p.optional {
				return in, p.name + " is missing"
			}
			continue
		}
		if p.kind == "string" {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				return in, p.name + " is not a text"
			}
			in.text[p.name] = text
			continue
		}
		// Models write 5, 5.0 and "5".
		n, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
		if err != nil || n < 1 || n > 1e9 {
			return in, p.name + " is not a number from 1"
		}
		in.number[p.name] = int(n)
	}
	if strings.ContainsRune(in.text["path"]+in.text["command"]+in.text["pattern"], 0) {
		return in, "it contains a zero byte"
	}
	if len(in.text["path"]) > maxPath || len(in.text["pattern"]) > maxPatternLen {
		return in, fmt.Sprintf("path and pattern may be %d bytes long", maxPath)
	}
	return in, ""
}

var tools = []tool{
	{
		"shell", "Run a command with sh -c in the working folder. Each call is a shell of its own. Its output is shown, the middle left out if it is long. What the command leaves running in the background runs on.",
		[]param{
			{"command", "string", "the command", false},
			{"timeout", "number", fmt.Sprintf("seconds after which it is ended; %d if not given, %d at most", int(shellTimeout.Seconds()), int(longestShell.Seconds())), true},
		},
		useShell,
	},
	{
		"read", "Read lines of a text file.",
		[]param{
			{"path", "string", "the file; relative paths begin at the working folder", false},
			{"line", "number", "the first line, from 1", true},
			{"lines", "number", fmt.Sprintf("how many; %d if not given", defaultLines), true},
		},
		useRead,
	},
	{
		"write", "Write a whole file. It and its folders are made if they are missing; what was in it is gone.",
		[]param{{"path", "string", "the file", false}, {"text", "string", "all that shall be in it", false}},
		useWrite,
	},
	{
		"edit", "Replace a piece of a file. The old piece must occur exactly once, white space included: give enough around it.",
		[]param{
			{"path", "string", "the file", false},
			{"old", "string", "the piece as it is now", false},
			{"new", "string", "what stands there afterwards", false},
		},
		useEdit,
	},
	{
		"search", "Search the files of a folder for a regular expression; shows file, line number and line.",
		[]param{
			{"pattern", "string", "the regular expression", false},
			{"path", "string", "folder or file; the working folder if not given", true},
		},
		useSearch,
	},
}

// Tools are the names of the tools, as they are asked about.
func Tools() []string {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return names
}

func useShell(ctx context.Context, h hand, in input) (done, error) {
	command := in.text["command"]
	switch {
	case strings.TrimSpace(command) == "":
		return wrong("the command is empty"), nil
	case len(command) > maxShell:
		return wrong("the command is %d bytes long, the limit is %d: write a script with the tool write and run that", len(command), maxShell), nil
	}
	limit := shellTimeout
	if n, ok := in.number["timeout"]; ok {
		limit = min(time.Duration(n)*time.Second, longestShell)
	}
	out, err := h.hands.Exec(ctx, sandbox.Command{ID: h.id, Shell: command, Dir: sandbox.WorkDir, Timeout: limit}, nil)
	if err != nil {
		return done{}, err
	}
	d := done{head: ending(out), failed: out.Exit != 0 || out.TimedOut, text: out.Out}
	if out.Err != "" {
		d.text = strings.TrimSuffix(d.text, "\n")
		if d.text != "" {
			d.text += "\n"
		}
		d.text += "[standard error]\n" + out.Err
	}
	return d, nil
}

// ending says how a command ended.
func ending(out Output) string {
	text := fmt.Sprintf("exit %d", out.Exit)
	if out.TimedOut {
		text = fmt.Sprintf("ended after %s, which was its time", out.Ended.Sub(out.Started).Round(time.Second)) // a limit of the task's may leave it less than it asked for
	}
	for _, e := range out.Exhausted {
		text += fmt.Sprintf("; out of %s", e)
	}
	if out.Disturbed && out.Exit != 0 {
		text += "; the network was away for a while, which may be why"
	}
	return text
}

// file runs one of the scripts below. They are commands in the box like any
// other, so that links, devices and races can only hurt the box.
func (h hand) file(ctx context.Context, suffix, script string, stdin []byte, args ...string) (Output, error) {
	return h.hands.Exec(ctx, sandbox.Command{
		ID: h.id + cofferdam.ExecID(suffix), Argv: append([]string{"sh", "-c", script, "sh"}, args...), Dir: sandbox.WorkDir,
		Timeout: fileTimeout, Stdin: stdin != nil,
	}, stdin)
}

// told returns what a script said that did not succeed.
func told(what string, out Output) done {
	if out.TimedOut {
		return wrong("%s: it took longer than %s", what, fileTimeout)
	}
	return done{head: fmt.Sprintf("%s: exit %d", what, out.Exit), text: clip(out.Err, maxShown), failed: true}
}

// plain refuses what is not an ordinary file: a device would never end.
const plain = `set -eu
p=$1
case $p in -*) p=./$p ;; esac
if [ -d "$p" ]; then echo "$1 is a folder" >&2; exit 1; fi
if [ ! -e "$p" ]; then echo "there is no file $1" >&2; exit 1; fi
if [ ! -f "$p" ]; then echo "$1 is not an ordinary file" >&2; exit 1; fi
`

const readScript = plain + `n=$(wc -l < "$p")
echo "$n" >&2
sed -n "$2,$3p;$3q" "$p" | head -c "$4"`

func useRead(ctx context.Context, h hand, in input) (done, error) {
	path, first, count := in.text["path"], max(1, in.number["line"]), in.number["lines"]
	if count == 0 {
		count = defaultLines
	}
	last := first + min(count, mostLines) - 1
	out, err := h.file(ctx, "", readScript, nil, path, strconv.Itoa(first), strconv.Itoa(last), strconv.Itoa(2*maxShown))
	if err != nil {
		return done{}, err
	}
	if out.Exit != 0 || out.TimedOut {
		return told("the file was not read", out), nil
	}
	head := fmt.Sprintf("from line %d on; the file has %s lines", first, digits(out.Err))
	return done{head: head, text: out.Out}, nil
}

// digits keeps the number that a script wrote, whatever the box made of it.
func digits(text string) string {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63)
	if err != nil {
		return "an unknown number of"
	}
	return strconv.FormatUint(n, 10)
}

// writeScript takes all of its input before it touches the file, so that a
// write whose input was cut changes nothing. It writes into the file that is
// there: links and modes stay.
const writeScript = `set -eu
p=$1
case $p in -*) p=./$p ;; esac
if [ -e "$p" ] && [ ! -f "$p" ]; then echo "$1 is not an ordinary file" >&2; exit 1; fi
t=$(mktemp)
trap 'rm -f "$t"' EXIT
cat > "$t"
[ "$(wc -c < "$t")" -eq "$2" ] || { echo "the text did not arrive whole" >&2; exit 1; }
if [ -n "$3" ]; then
	now=$(sha256sum < "$p")
	[ "${now%% *}" != "$4" ] || exit 0
	[ "${now%% *}" = "$3" ] || { echo "$1 is not what was read of it: it was changed meanwhile, or holds a secret that cannot be shown" >&2; exit 1; }
fi
case $p in */*) mkdir -p "${p%/*}/" ;; esac
cat "$t" > "$p"
`

func useWrite(ctx context.Context, h hand, in input) (done, error) {
	path, text := in.text["path"], in.text["text"]
	if strings.TrimSpace(path) == "" {
		return wrong("path is empty"), nil
	}
	out, err := h.file(ctx, "", writeScript, []byte(text), path, strconv.Itoa(len(text)), "", "")
	if err != nil {
		return done{}, err
	}
	if out.Exit != 0 || out.TimedOut {
		return told("the file was not written", out), nil
	}
	return done{head: fmt.Sprintf("written, %d bytes", len(text)), path: path}, nil
}

// wholeScript gives out a file that is not larger than can be edited.
const wholeScript = plain + `n=$(wc -c < "$p")
[ "$n" -le "$2" ] || { echo "$1 has $n bytes; edit takes $2 at most" >&2; exit 1; }
cat "$p"`

// useEdit reads the file, replaces, and writes it back if it still is what was
// read: the digest tells, also after a write that an earlier process had begun.
func useEdit(ctx context.Context, h hand, in input) (done, error) {
	path, old, fresh := in.text["path"], in.text["old"], in.text["new"]
	switch {
	case old == "":
		return wrong("old is empty: give the piece to replace, or use write"), nil
	case old == fresh:
		return wrong("old and new are the same"), nil
	}
	out, err := h.file(ctx, "", wholeScript, nil, path, strconv.Itoa(MaxOutput))
	if err != nil {
		return done{}, err
	}
	if out.Exit != 0 || out.TimedOut {
		return told("the file was not read", out), nil
	}
	switch n := strings.Count(out.Out, old); {
	case n == 0:
		return wrong("the old piece does not occur in the file"), nil
	case n > 1:
		return wrong("the old piece occurs %d times in the file: give more around it", n), nil
	}
	text := strings.Replace(out.Out, old, fresh, 1)
	out, err = h.file(ctx, "-write", writeScript, []byte(text), path, strconv.Itoa(len(text)), digest(out.Out), digest(text))
	if err != nil {
		return done{}, err
	}
	if out.Exit != 0 || out.TimedOut {
		return told("the file was not changed", out), nil
	}
	return done{head: "changed", path: path}, nil
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// searchScript uses rg where there is one and grep elsewhere. What it finds is
// bounded here, because all of it goes on record.
const searchScript = `p=$2
case $p in -*) p=./$p ;; esac
if command -v rg >/dev/null 2>&1; then
	set -- rg --no-config --no-heading --color never -n -e "$1" -- "$p"
else
	set -- grep -rnIE --exclude-dir=.git -e "$1" -- "$p"
fi
"$@" | head -c "$limit"`

func useSearch(ctx context.Context, h hand, in input) (done, error) {
	pattern, path := in.text["pattern"], in.text["path"]
	if pattern == "" {
		return wrong("pattern is empty"), nil
	}
	if path == "" {
		path = "."
	}
	out, err := h.file(ctx, "", fmt.Sprintf("limit=%d\n", 8*maxShown)+searchScript, nil, pattern, path)
	if err != nil {
		return done{}, err
	}
	switch {
	case out.Out == "" && out.Err == "" && !out.TimedOut:
		return done{head: "nothing was found"}, nil
	case out.Out == "":
		return told("the search ended", out), nil
	}
	lines := strings.Split(strings.TrimSuffix(out.Out, "\n"), "\n")
	head := fmt.Sprintf("%d lines were found", len(lines))
	if len(lines) > mostMatches {
		head = fmt.Sprintf("more than %d lines were found, these are the first", mostMatches)
		lines = lines[:mostMatches]
	}
	for i, l := range lines {
		if len(l) > longestMatch {
			lines[i] = strings.ToValidUTF8(l[:longestMatch], "") + "…"
		}
	}
	return done{head: head, text: strings.Join(lines, "\n")}, nil
}
