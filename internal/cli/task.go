package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cofferdam"
	"cofferdam/client"
)

func newTask(a *app) *cobra.Command {
	return newNoun("task", "Give work to an agent and see what comes of it",
		newTaskRun(a), newTaskCreate(a), newTaskList(a), newTaskView(a), newTaskFollow(a), newTaskWait(a), newTaskSend(a), newTaskCancel(a), newTaskRetry(a))
}

// taskFlags are what run and create share.
type taskFlags struct {
	request               cofferdam.TaskRequest
	textFile, commandFile string
	check, keep           []string
	timeout               time.Duration
	memory, disk, temp    string
	limits                cofferdam.Limits
	budget                budgetFlags
	contract              cofferdam.Contract
	idle, lifetime        time.Duration
}

func (t *taskFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&t.textFile, "file", "f", "", "read the text from this file; - is stdin")
	f.StringArrayVar(&t.check, "check", nil, "command that fails now and must pass afterwards (may repeat; each runs in a fresh box)")
	f.StringArrayVar(&t.keep, "keep", nil, "command that passes now and must still pass afterwards (may repeat; each runs in a fresh box)")
	f.StringArrayVar(&t.request.Done, "done", nil, "line of a definition of done, for the agent and reviewers (may repeat)")
	f.StringVar(&t.request.Repo, "repo", "", "repository (default: the only one)")
	f.StringVar(&t.request.Base, "base", "", "branch to start from (default: the repository's base branch)")
	f.StringVar(&t.request.Agent, "agent", "", "name of the agent (default: loop, or command if --command is given)")
	f.StringVar(&t.request.Command, "command", "", "shell text that the agent \"command\" runs")
	f.StringVar(&t.commandFile, "command-file", "", "read --command from this file")
	f.StringVar(&t.request.Model, "model", "", "model the agent calls (default: the only one)")
	f.StringArrayVar(&t.request.Allow, "allow", nil, "HOST[:PORT], *.HOST[:PORT] or preset:NAME the agent may reach; splice:HOST passes unread, credentials:HOST may be sent keys of the box (may repeat)")
	f.StringVar(&t.request.Image, "image", "", "host, a folder on the server, or an image its operator allows (default: the definition's, or host)")
	f.StringVar(&t.request.Tier, "tier", "", "tier of its boxes: process, gvisor, microvm or microvm-emulated; never weaker than the server's (default: the server's)")
	f.StringVar(&t.request.Environment, "environment", "", "none, or the name of a folder in .devcontainer (default: the repository's own definition)")
	f.DurationVar(&t.timeout, "timeout", 0, "longest run of the agent, such as 30m (default: the server's)")
	f.BoolVar(&t.request.Ask, "ask", false, "the agent may ask you something and wait; cofferdam task send answers")
	f.DurationVar(&t.idle, "idle-timeout", 0, "suspend its box when it has nothing to do for so long, 60s to 8h (default: the server's; the lower counts)")
	f.DurationVar(&t.lifetime, "max-lifetime", 0, "longest life of a session, 60s to 336h (default: the server's; the lower counts)")
	f.StringVar(&t.memory, "memory", "", "memory of the box, such as 4GiB")
	f.StringVar(&t.disk, "disk", "", "size of its workspace")
	f.StringVar(&t.temp, "temp", "", "size of its /tmp")
	f.Float64Var(&t.limits.CPU, "cpus", 0, "processors")
	f.Int64Var(&t.limits.PIDs, "pids", 0, "processes and threads")
	f.Int64Var(&t.limits.OpenFiles, "open-files", 0, "descriptors per process")
	t.budget.add(c, "the server's")
	f.StringArrayVar(&t.contract.Paths, "scope-path", nil, "file, or folder with a slash at its end, that the work may change; a push beyond is refused (repeatable)")
	f.StringArrayVar(&t.contract.Hosts, "scope-host", nil, "host that the work may reach of those that policy allows (repeatable)")
	f.StringArrayVar(&t.contract.Tools, "scope-tool", nil, "tool of our own agent that the work may use, such as own:read; a call of another is refused (repeatable)")
	f.BoolVar(&t.contract.Mark, "scope-mark", false, "let what is beyond --scope-path or --scope-tool pass, and mark it for who reviews it")
	f.StringVar(&t.request.Key, "key", "", "idempotency key: the same key twice makes one task")
}

// maxCPUs is far above any machine of today.
const maxCPUs = 4096

// maxText bounds text read from a file: the server takes 256 KiB.
const maxText = 1 << 20

func (t *taskFlags) build(a *app, c *cobra.Command, args []string) (cofferdam.TaskRequest, error) {
	r := t.request
	switch {
	case len(args) == 0 && t.textFile == "":
		return r, usage(c, "TEXT is missing: say what is to be done, or give -f FILE")
	case len(args) == 1 && t.textFile != "":
		return r, usage(c, "give the TEXT of the task or -f FILE, not both")
	case len(args) == 1:
		r.Text = args[0]
	}
	var err error
	if t.textFile != "" {
		if r.Text, err = a.readText(t.textFile, maxText); err != nil {
			return r, err
		}
	}
	if t.commandFile != "" {
		if r.Command != "" {
			return r, usage(c, "give --command or --command-file, not both")
		}
		if r.Command, err = a.readText(t.commandFile, maxText); err != nil {
			return r, err
		}
	}
	for _, check := range t.check {
		r.Checks = append(r.Checks, cofferdam.Check{Command: check, MustFailFirst: true})
	}
	for _, keep := range t.keep {
		r.Checks = append(r.Checks, cofferdam.Check{Command: keep})
	}
	if t.timeout < 0 || c.Flags().Changed("timeout") && t.timeout == 0 {
		return r, usage(c, "--timeout has to be longer than 0")
	}
	r.Timeout = t.timeout.Seconds()
	if rest := (cofferdam.Rest{Idle: t.idle.Seconds(), Lifetime: t.lifetime.Seconds()}); rest != (cofferdam.Rest{}) {
		if why := rest.Check(); why != "" {
			return r, usage(c, "--idle-timeout and --max-lifetime: "+why)
		}
		r.Rest = &rest
	}
	for _, size := range []struct {
		flag, text string
		to         *int64
	}{{"memory", t.memory, &t.limits.Memory}, {"disk", t.disk, &t.limits.Disk}, {"temp", t.temp, &t.limits.Temp}} {
		if *size.to, err = parseSize(size.text); err != nil {
			return r, usage(c, "--"+size.flag+": "+err.Error())
		}
	}
	if t.limits.CPU < 0 || t.limits.CPU > maxCPUs || t.limits.CPU != t.limits.CPU {
		return r, usage(c, "--cpus is no number of processors")
	}
	if t.limits != (cofferdam.Limits{}) {
		r.Limits = &t.limits
	}
	if len(t.contract.Paths)+len(t.contract.Hosts)+len(t.contract.Tools) > 0 || t.contract.Mark {
		r.Contract = &t.contract
	}
	r.Budget, err = t.budget.build(c)
	return r, err
}

// create gives the server the task that flags and arguments describe.
func (t *taskFlags) create(a *app, c *cobra.Command, args []string) (*client.Client, cofferdam.Task, error) {
	r, err := t.build(a, c, args)
	if err != nil {
		return nil, cofferdam.Task{}, err
	}
	cl, err := a.dial()
	if err != nil {
		return nil, cofferdam.Task{}, err
	}
	task, err := cl.CreateTask(c.Context(), r)
	return cl, task, err
}

// parseSize reads 4096, 512MiB, 4GiB; "" is 0, the default.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	digits := strings.TrimRight(s, "KMGTiB")
	shift, ok := map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[s[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n <= 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("%.40q is no size such as 512MiB or 4GiB", s)
	}
	return n << shift, nil
}

// readText reads a file, or stdin for "-".
func (a *app) readText(path string, most int64) (string, error) {
	r := a.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", cofferdamError("file "+path, plain(err), "check its name")
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return "", cofferdamError("file "+path, plain(err), "give a text file")
	}
	if int64(len(data)) > most {
		return "", cofferdamError("file "+path, fmt.Sprintf("is larger than %d bytes", most), "give a smaller one")
	}
	return string(data), nil
}

func text(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage(c, "one argument too many: "+quoted(args[1])+"; put the text in quotes")
	}
	return nil
}

func newTaskRun(a *app) *cobra.Command {
	t := &taskFlags{}
	c := &cobra.Command{
		Use: "run TEXT|-f FILE", Short: "Create a task, follow it, exit with its outcome", Args: text,
		Long: "Create a task, follow it, and exit with its outcome: 0 only if the platform's own checks passed, whatever the agent says. " +
			"Ctrl-C stops following; the task goes on." + calling(9, 10, 12, 130),
		Example: "  cofferdam task run \"fix the failing test\" --check \"go test ./...\"\n  cofferdam task run -f task.txt --keep \"make test\" --allow preset:npm",
		RunE: func(c *cobra.Command, args []string) error {
			cl, task, err := t.create(a, c, args)
			if err != nil {
				return err
			}
			if !a.json {
				fmt.Fprintln(a.Out, task.Short())
			}
			return a.followToEnd(c.Context(), cl, task)
		},
	}
	t.add(c)
	return c
}

// followToEnd shows progress, then the outcome.
func (a *app) followToEnd(ctx context.Context, cl *client.Client, task cofferdam.Task) error {
	p := a.newProgress(task)
	last, err := p.follow(ctx, cl)
	p.stop()
	if err != nil {
		if ctx.Err() != nil {
			return interrupted{hint: fmt.Sprintf("%s goes on; cofferdam task follow %s shows it again, cofferdam task cancel %s ends it", task.Short(), task.Short(), task.Short())}
		}
		return err
	}
	if a.json {
		if err := a.object(last); err != nil {
			return err
		}
	} else {
		a.say("%s", sentence(last))
	}
	return ended(last)
}

// sentence is the outcome in words, with the next step.
func sentence(t cofferdam.Task) string {
	s := fmt.Sprintf("%s is %s", t.Short(), t.State)
	if t.Reason != "" {
		s += " (" + t.Reason + ")"
	}
	if t.Comment != "" {
		s += ": " + t.Comment
	}
	switch t.State {
	case cofferdam.Waiting:
		return s + "; next: cofferdam task send " + t.Short() + " ANSWER"
	case cofferdam.InReview:
		if t.RegressionOnly {
			s += "; regression only: no check failed first"
		}
		return s + "; next: cofferdam merge view " + t.Short()
	case cofferdam.Blocked, cofferdam.Failed, cofferdam.TimedOut:
		if more := moreOf(t); more != "" {
			return s + "; to go on with more: " + more
		}
		return s + "; see cofferdam task view " + t.Short() + ", cofferdam trace follow " + t.Short()
	}
	return s
}

func newTaskCreate(a *app) *cobra.Command {
	t := &taskFlags{}
	c := &cobra.Command{
		Use: "create TEXT|-f FILE", Short: "Create a task and return", Args: text,
		Long:    "Create a task and print its name; it runs on the server." + calling(10),
		Example: "  cofferdam task create \"fix the failing test\" --check \"go test ./...\"",
		RunE: func(c *cobra.Command, args []string) error {
			_, task, err := t.create(a, c, args)
			if err != nil {
				return err
			}
			return a.changed(task, "created "+task.Short()+"; follow it with cofferdam task follow "+task.Short())
		},
	}
	t.add(c)
	return c
}

// changed prints a task after a change: its name for scripts, a sentence for people.
func (a *app) changed(t cofferdam.Task, sentence string) error {
	if a.json {
		return a.object(t)
	}
	a.say("%s", sentence)
	_, err := fmt.Fprintln(a.Out, t.Short())
	return err
}

func newTaskList(a *app) *cobra.Command {
	var f client.TaskFilter
	var state string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List tasks, newest first", Args: none,
		Long: "List tasks, newest first." + calling(), Example: "  cofferdam task list --state \"in review\"",
		RunE: func(c *cobra.Command, _ []string) error {
			if f.Limit < 0 || f.Before < 0 {
				return usage(c, "--limit and --before count from 0")
			}
			cl, err := a.dial()
			if err != nil {
				return err
			}
			f.State = stateOf(state)
			all, err := cl.Tasks(c.Context(), f)
			if err != nil {
				return err
			}
			return a.tasks(all)
		},
	}
	c.Flags().StringVar(&state, "state", "", "only those in this state")
	c.Flags().StringVar(&f.Repo, "repo", "", "only those of this repository")
	c.Flags().IntVar(&f.Limit, "limit", 0, "at most so many")
	c.Flags().Int64Var(&f.Before, "before", 0, "only numbers below this one")
	return c
}

// stateOf reads a state as a person types it: also with hyphens, which need no quotes.
func stateOf(text string) cofferdam.TaskState {
	return cofferdam.TaskState(strings.ReplaceAll(text, "-", " "))
}

func (a *app) tasks(all []cofferdam.Task) error {
	return items(a, "cofferdam/task-list/v1", all, func(t cofferdam.Task) string { return string(t.ID) },
		[]string{"TASK", "STATE", "REPO", "AGENT", "TEXT", "AGE"}, func(t cofferdam.Task) []string {
			first, _, _ := strings.Cut(t.Request.Text, "\n")
			state := string(t.State)
			if t.Waits != "" {
				state += ", waits its turn"
			}
			return []string{t.Short(), state, t.Request.Repo, t.Request.Agent, cut(first, 36), age(t.Created)}
		})
}

func newTaskView(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "view TASK", Short: "Show everything about a task", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "Show everything about a task, by t-N, id or unique prefix of an id." + calling(), Example: "  cofferdam task view t-1",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			t, err := cl.Task(c.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(t)
			}
			lines := taskLabels(t)
			for _, id := range t.Sessions {
				s, err := cl.Session(c.Context(), string(id))
				if err == nil && s.Found != "" { // a session that began just now has none yet
					lines = append(lines, label{"environment", s.Phase + ": " + s.Found})
				}
				if err == nil {
					lines = append(append(lines, endLabels(s)...), lifeLabels(s.Life)...)
				}
			}
			if w, err := cl.Workspace(c.Context(), t.Short()); err == nil { // it may have none
				lines = append(lines, keptLabel(t, w))
			}
			return a.labels(lines)
		}),
	}
}

func taskLabels(t cofferdam.Task) []label {
	lines := []label{
		{"task", t.Short() + "  " + string(t.ID)},
		{"state", string(t.State)},
		{"reason", t.Reason},
		{"comment", t.Comment},
		{"turn", t.Waits},
		{"text", cut(strings.TrimSpace(t.Request.Text), 2000)},
		{"repository", t.Request.Repo},
		{"agent", t.Request.Agent},
		{"model", t.Request.Model},
	}
	for _, check := range t.Request.Checks {
		lines = append(lines, label{flagOf(check), check.Command})
	}
	if t.RegressionOnly {
		lines = append(lines, label{"note", "regression only: no check failed first"})
	}
	for _, allow := range t.Request.Allow {
		lines = append(lines, label{"allow", allow})
	}
	if s := t.Request.Contract; s != nil {
		for _, p := range s.Paths {
			lines = append(lines, label{"scope", p + map[bool]string{true: " (what is beyond is marked)"}[s.Mark]})
		}
		for _, h := range s.Hosts {
			lines = append(lines, label{"scope host", h})
		}
		for _, t := range s.Tools {
			lines = append(lines, label{"scope tool", t})
		}
	}
	lines = append(lines,
		label{"attempt", strconv.Itoa(t.Attempt)}, label{"base", string(t.Base) + " " + string(t.BaseAt)}, label{"branch", string(t.Branch)},
		label{"commit", string(t.Head)}, label{"receipt", string(t.Receipt)}, label{"landed", string(t.Landed)},
	)
	for _, s := range t.Sessions {
		lines = append(lines, label{"session", string(s)})
	}
	return append(lines,
		label{"refused", strconv.FormatInt(t.Usage.Refused, 10)},
		label{"model calls", spent(t.Usage)}, label{"also used", took(t.Usage)}, label{"budget", limits(t.Limits())},
		label{"by", t.By.String()}, label{"created", stamp(t.Created)}, label{"updated", stamp(t.Updated)})
}

// flagOf is the flag that a check was given with.
func flagOf(c cofferdam.Check) string {
	if c.MustFailFirst {
		return "check"
	}
	return "keep"
}

func newTaskFollow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "follow TASK", Short: "Follow a task until it is at rest, exit with its outcome", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long:    "Follow a task until it is at rest, and exit with its outcome. With --json every change and event is one line." + calling(9, 10, 12, 130),
		Example: "  cofferdam task follow t-1",
		RunE: a.atServer(func(c *cobra.Command, cl *client.Client, args []string) error {
			t, err := cl.Task(c.Context(), args[0])
			if err != nil {
				return err
			}
			if !a.json {
				return a.followToEnd(c.Context(), cl, t)
			}
			last, err := (&progress{a: a, task: t, each: func(p cofferdam.Progress) error { return a.line(p) }}).follow(c.Context(), cl)
			if err != nil {
				return err
			}
			return ended(last)
		}),
	}
}

func newTaskCancel(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "cancel TASK", Short: "End a task now", Args: exactly("TASK"), ValidArgsFunction: a.completeTasks,
		Long: "End a task now: its box is destroyed and its grants are dead." + calling(), Example: "  cofferdam task cancel t-1",
		RunE: func(c *cobra.Command, args []string) error {
			return a.change(c, args[0], (*client.Client).CancelTask, "cancelled")
		},
	}
}

func (a *app) change(c *cobra.Command, name string, do func(*client.Client, context.Context, string) (cofferdam.Task, error), verb string) error {
	cl, err := a.dial()
	if err != nil {
		return err
	}
	t, err := do(cl, c.Context(), name)
	if err != nil {
		return err
	}
	return a.changed(t, verb+" "+t.Short())
}
