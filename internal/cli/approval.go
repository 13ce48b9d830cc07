package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

// answers asks people and shows what they are asked.
type answers struct{ *app }

func newApproval(a *app) *cobra.Command {
	return newNoun("approval", "Answer what policy asks people about",
		newApprovalList(a), newApprovalView(a), newApprovalAnswer(a, true), newApprovalAnswer(a, false), newApprovalOpen(a), newApprovalBind(a), newApprovalWebhook(a))
}

func newApprovalList(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List questions that wait, newest first", Args: none,
		Long: "List the questions that wait for a person, the newest first; with --all also those that are over." + calling(), Example: "  cofferdam approval list",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, _ []string) error {
			list, err := cl.Approvals(c.Context(), !all)
			if err != nil {
				return err
			}
			return items(a, "cofferdam/approval-list/v1", list, func(q cofferdam.Question) string { return string(q.ID) },
				[]string{"ID", "STATE", "ACTION", "RESOURCE", "TASK", "LEFT"}, func(q cofferdam.Question) []string {
					return []string{string(q.ID)[:min(14, len(q.ID))], string(q.State), q.Action, cut(clean(q.Resource), 40), string(q.Task)[:min(10, len(q.Task))], left(q)}
				})
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "also those that were answered or are over")
	return c
}

// left is how long a question waits yet.
func left(q cofferdam.Question) string {
	if q.State != cofferdam.QuestionOpen {
		return "-"
	}
	return max(0, time.Until(q.Expires)).Truncate(time.Second).String()
}

func newApprovalView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view ID", Short: "Show exactly what would be sent", Args: exactly("ID"),
		Long: "Show one question: who asks, by which rule, and exactly the bytes that would be sent." + calling(), Example: "  cofferdam approval view a-3f9c01",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			q, err := cl.Approval(c.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(q)
			}
			return answers{a}.showQuestion(q)
		}),
	}
}

// showQuestion prints what a person has to see. Every control is made visible, and
// what is not shown is counted.
func (a answers) showQuestion(q cofferdam.Question) error {
	proposes := ""
	if q.Proposed != nil {
		proposes = "to open " + told(*q.Proposed) + ", for this task"
	}
	if err := a.labels([]label{
		{"question", string(q.ID) + "  " + string(q.State)},
		{"asked by", q.Actor.String() + " of task " + string(q.Task)},
		{"act", q.Source + " " + q.Action},
		{"resource", q.Resource},
		{"proposal", proposes},
		{"rule", q.Rule + ": " + q.Reason},
		{"policy", string(q.Policy)},
		{"target", q.Target},
		{"people", fmt.Sprintf("%d of %d have answered", len(q.Answers), q.Needs)},
		{"answered", strings.Join(answered(q), "; ")},
		{"waits", left(q)},
		{"digest", string(q.Hash)},
		{"size", fmt.Sprintf("%d bytes, %d of them below", q.Size, len(q.Bytes))},
	}); err != nil {
		return err
	}
	if q.Proposed != nil {
		return a.showWords(q)
	}
	if len(q.Bytes) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(a.Out, "\n%s\n", exactBytes(q.Bytes)); err != nil {
		return err
	}
	if hidden := q.Size - int64(len(q.Bytes)); hidden > 0 {
		_, err := fmt.Fprintf(a.Out, "  \\(%d bytes more, which are not shown; they are part of the digest)\n", hidden)
		return err
	}
	return nil
}

// answered says who said what, when, and what showed that it was them.
func answered(q cofferdam.Question) (all []string) {
	for _, w := range q.Answers {
		s := "no"
		if w.Allow {
			s = "yes"
		}
		s += " by " + w.By.String() + " with " + w.Proof + " at " + stamp(w.Time)
		if w.Bounds != nil {
			s += ", which opens " + told(*w.Bounds)
		}
		if w.Comment != "" {
			s += fmt.Sprintf(" (%s)", clean(w.Comment))
		}
		all = append(all, s)
	}
	return all
}

// shownBlanks is how many blanks in a row are shown as they are: more of them move
// what comes after out of sight.
const shownBlanks = 16

// exactBytes shows bytes so that none hides: lines are marked, and what cannot be
// seen is written as its number.
func exactBytes(b []byte) string {
	var out strings.Builder
	for _, line := range strings.SplitAfter(string(b), "\n") {
		if line == "" {
			continue
		}
		out.WriteString("  | ")
		body, ended := strings.CutSuffix(line, "\n")
		body, carriage := strings.CutSuffix(body, "\r")
		for i := 0; i < len(body); {
			r, n := utf8.DecodeRuneInString(body[i:])
			if run := len(body[i:]) - len(strings.TrimLeft(body[i:], " ")); run > shownBlanks {
				fmt.Fprintf(&out, `\(%d blanks)`, run)
				i += run
				continue
			}
			switch {
			case r == utf8.RuneError && n == 1:
				fmt.Fprintf(&out, "\\x%02x", body[i])
			case r == '\\':
				out.WriteString(`\\`)
			case r == ' ' || r > ' ' && r < 0x7f:
				out.WriteRune(r)
			default: // also letters of other scripts: one that looks like another must not pass for it
				fmt.Fprintf(&out, "\\u{%x}", r)
			}
			i += n
		}
		if carriage {
			out.WriteString(`\r`)
		}
		if !ended {
			out.WriteString(`\(no line end)`)
		}
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func newApprovalAnswer(a *app, allow bool) *cobra.Command {
	verb, does := "deny", "Say no to a question"
	if allow {
		verb, does = "allow", "Let exactly this act pass, once"
	}
	var comment, entry string
	var f openFlags
	c := &cobra.Command{
		Use: verb + " ID", Short: does, Args: exactly("ID"),
		Long: does + ". A person does this at a terminal, after the question is shown, and proves with a password or a code that they are there; " +
			"nothing else answers, --yes neither." + calling(9),
		Example: "  cofferdam approval " + verb + " a-3f9c01",
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := answers{a}.attend("answering "+args[0], "cofferdam approval "+verb)
			if err != nil {
				return err
			}
			q, err := cl.Approval(c.Context(), args[0])
			if err != nil {
				return err
			}
			if err := (answers{a}).showQuestion(q); err != nil {
				return err
			}
			r := cofferdam.AnswerRequest{Hash: q.Hash, Allow: allow, Comment: comment}
			if r.Bounds, err = f.bounds(c, q, entry); err != nil {
				return err
			}
			if r.Proof, err = (answers{a}).prove(c, cl); err != nil {
				return err
			}
			if q, err = cl.Answer(c.Context(), q.ID, r); err != nil {
				return err
			}
			if a.json {
				return a.object(q)
			}
			a.say("%s is %s", q.ID, q.State)
			return nil
		},
	}
	c.Flags().StringVar(&comment, "comment", "", "a sentence for the record and the agent")
	if allow {
		c.Flags().StringVar(&entry, "entry", "", "open this for the rest of the task, such as api.example.com")
		f.add(c, "with --entry, or less than an agent proposes: ")
	}
	return c
}

// attend reaches the server for what only a person at a terminal does.
func (a answers) attend(what, command string) (*client.Client, error) {
	conf, err := a.clientConfig()
	if err != nil {
		return nil, err
	}
	if conf.NoInput || !a.Terminal(a.In) || !a.Terminal(a.stdout) {
		return nil, &cofferdam.Error{Op: "cli.Answer", Kind: cofferdam.AwaitsPerson, Subject: what, Reason: "a person has to do it, and there is no terminal", Hint: "a person runs " + command + " at a terminal"}
	}
	return a.dial()
}

// proved sends a request that wants a proof that a person is there. The proof is asked
// for once nothing else stands in the way: send is called without one first.
func proved[T any](a answers, c *cobra.Command, cl *client.Client, send func(cofferdam.Proof) (T, error)) (T, error) {
	v, err := send(cofferdam.Proof{})
	var e *cofferdam.Error
	if !errors.As(err, &e) || e.Reason != cofferdam.NoProof {
		return v, err
	}
	p, err := a.prove(c, cl)
	if err != nil {
		return v, err
	}
	return send(p)
}

// prove asks for what shows that a person is there: a code if they have one of
// codes, else their password. Who has nothing yet is told to set it up, and asked.
func (a answers) prove(c *cobra.Command, cl *client.Client) (cofferdam.Proof, error) {
	factors, err := cl.Factors(c.Context())
	if err != nil {
		return cofferdam.Proof{}, err
	}
	kinds := map[string]bool{}
	for _, f := range factors {
		kinds[f.Kind] = true
	}
	switch {
	case kinds["passkey"] && !kinds["totp"] && !kinds["password"]:
		return cofferdam.Proof{Kind: "passkey"}, nil
	case kinds["totp"]:
		code, err := a.secretLine(c, orPasskey("Code of your application", kinds))
		if code == "" && kinds["passkey"] {
			return cofferdam.Proof{Kind: "passkey"}, err
		}
		return cofferdam.Proof{Kind: "totp", Code: code}, err
	case kinds["password"]:
		password, err := a.secretLine(c, orPasskey("Password", kinds))
		if password == "" && kinds["passkey"] {
			return cofferdam.Proof{Kind: "passkey"}, err
		}
		return cofferdam.Proof{Kind: "password", Password: password}, err
	}
	fmt.Fprintln(a.Out, "Nothing shows yet that it is you who answers, and not a program of yours. Choose a password of 12 characters or more; it is asked for from now on.")
	password, err := a.newPassword(c)
	if err != nil {
		return cofferdam.Proof{}, err
	}
	if _, err := cl.Enroll(c.Context(), cofferdam.EnrollRequest{Kind: "password", Name: "terminal", Password: password}); err != nil {
		return cofferdam.Proof{}, err
	}
	return cofferdam.Proof{Kind: "password", Password: password}, nil
}

// orPasskey is a prompt of somebody who may have a passkey as well.
func orPasskey(prompt string, kinds map[string]bool) string {
	if kinds["passkey"] {
		prompt += ", or nothing for your passkey"
	}
	return prompt + ": "
}
