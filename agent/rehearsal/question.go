package rehearsal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// question is a request as the script sees it, whatever its protocol.
type question struct {
	model   string
	stream  bool
	counted bool    // Chat Completions: the stream ends with the usage
	array   bool    // Gemini: the stream is one JSON array
	sealed  bool    // Responses: reasoning is asked for in encrypted form
	tools   []tool  // offered
	schema  *schema // of the answer, where one is asked for
	turn    int     // number of the answer asked for, from 1
	asked   string  // all texts of the user
	result  string  // the latest tool results
	size    int     // bytes of the request
	folder  string  // working directory, where the request names it

	// While the history is read:
	last  string // id of the answer read last, "": none or not known
	open  bool   // the part before was of an answer too
	fresh bool   // no result has come since that answer
}

// user takes in a text of the user.
func (q *question) user(text string) {
	q.asked += text + "\n"
	q.open = false
}

// answered takes in a part of an answer. Parts that follow each other, or whose
// id is the same, are of one answer.
func (q *question) answered(id string) {
	id = answerOf(id)
	if !q.open && (id == "" || id != q.last) {
		q.turn++
		q.fresh = true
	}
	q.open, q.last = true, id
}

// returned takes in the result of a tool call.
func (q *question) returned(text string) {
	if q.fresh {
		q.result = ""
	}
	q.open, q.fresh = false, false
	q.result += text + "\n"
}

// mark stands in all ids that we give to parts of answers.
const mark = "_rehearsal_"

// partID names part i of an answer, and answerOf finds the answer's id in it.
func partID(kind, answer string, i int) string {
	return fmt.Sprintf("%s%s%s_%d", kind, mark, answer, i)
}

func answerOf(id string) string {
	_, rest, ok := strings.Cut(id, mark)
	if i := strings.LastIndexByte(rest, '_'); ok && i > 0 {
		return rest[:i]
	}
	return ""
}

// digest is the same for the same question, and begins with its turn.
func (q *question) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", q.turn, q.asked, q.result))
	return fmt.Sprintf("%d_%s", q.turn, hex.EncodeToString(sum[:12]))
}

// working finds the working directory that agents tell the model of.
var working = regexp.MustCompile(`(?i)(?:working (?:in the )?directory:? *|<cwd>)(/[^\s\\"<]+)`)

// complete makes a relative path absolute by the request's working directory.
func (q *question) complete(name string) string {
	if q.folder == "" || path.IsAbs(name) {
		return name
	}
	return path.Join(q.folder, name)
}

// texts is the plain text in a string, a list of parts or an object, as the
// protocols write contents and results.
func texts(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	var b strings.Builder
	collect(&b, v)
	return b.String()
}

func collect(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(v)
	case []any:
		for _, e := range v {
			collect(b, e)
			b.WriteString("\n")
		}
	case map[string]any:
		for _, key := range []string{"text", "content", "output", "error"} {
			if e, ok := v[key]; ok {
				collect(b, e)
			}
		}
	}
}
