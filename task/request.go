package task

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"cofferdam"
)

// Bounds of a request. Source: docs/SPECIFICATION.md, "Task". They are far above
// what people write by hand and far below what would hurt a database row.
const (
	MaxText    = 256 << 10 // bytes of the text
	MaxCommand = 64 << 10  // bytes of one command: a box takes no more
	MaxChecks  = 32
	MaxDone    = 64 // lines of a definition of done
	MaxLine    = 4 << 10
	MaxAllow   = 256
	MaxHost    = 300 // bytes of one allow item: a DNS name is at most 253
	MaxKey     = 255
	MaxPath    = 4096
	MaxTimeout = 24 * 60 * 60.0 // seconds
	MaxAttempt = 100
	minDisk    = 16 << 20 // of every tier: see package sandbox
	maxBytes   = 1 << 42  // 4 TiB: no limit of memory or disk may be larger
	maxCount   = 1 << 20  // processes, descriptors
	maxCPU     = 1024
)

var (
	agentName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	tierName  = regexp.MustCompile(`^[a-z][a-z-]{0,31}$`)
	// An image of the operator's, or HOST/NAME with a tag or digest.
	imageName       = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/@+-]{0,511}$`)
	environmentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	keyText         = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)
)

// Check says what is wrong with a request as such; nil if nothing is. Whether
// its repository, agent, model and hosts exist is for the caller to find out.
func Check(r cofferdam.TaskRequest) error {
	for _, check := range []func(cofferdam.TaskRequest) error{
		checkText, checkChecks, checkDone, checkAgent, checkReach, checkLimits, checkBudget, checkContract,
	} {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

func invalid(subject, reason, hint string) error {
	return &cofferdam.Error{Op: "task.Create", Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}

// plain says why s is no text for people or a shell; "" if it is.
func plain(s string, most int) string {
	switch {
	case strings.TrimSpace(s) == "":
		return "is empty"
	case len(s) > most:
		return fmt.Sprintf("is %d bytes long, at most %d are taken", len(s), most)
	case !utf8.ValidString(s):
		return "is not valid UTF-8 text"
	case strings.ContainsRune(s, 0):
		return "contains a zero byte"
	}
	return ""
}

func checkText(r cofferdam.TaskRequest) error {
	if why := plain(r.Text, MaxText); why != "" {
		return invalid("text of the task", why, "say in words what is wanted")
	}
	if r.Key != "" && !keyText.MatchString(r.Key) {
		return invalid("idempotency key", fmt.Sprintf("must be 1 to %d printable ASCII characters without spaces", MaxKey), "use a random identifier")
	}
	return nil
}

func checkChecks(r cofferdam.TaskRequest) error {
	const hint = "give --check COMMAND (fails now, must pass after) or --keep COMMAND (passes now and after)"
	if len(r.Checks) == 0 {
		return invalid("task", "has no check, so nothing could prove it", hint)
	}
	if len(r.Checks) > MaxChecks {
		return invalid("checks", fmt.Sprintf("%d given, at most %d are taken", len(r.Checks), MaxChecks), "join commands with &&")
	}
	seen := map[string]bool{}
	for i, c := range r.Checks {
		if why := plain(c.Command, MaxCommand); why != "" {
			return invalid(fmt.Sprintf("check %d", i+1), why, hint)
		}
		if seen[c.Command] {
			return invalid(fmt.Sprintf("check %d", i+1), "is given twice", "give each command once, as --check or as --keep")
		}
		seen[c.Command] = true
	}
	return nil
}

func checkDone(r cofferdam.TaskRequest) error {
	if len(r.Done) > MaxDone {
		return invalid("definition of done", fmt.Sprintf("%d lines given, at most %d are taken", len(r.Done), MaxDone), "join lines")
	}
	for i, line := range r.Done {
		if why := plain(line, MaxLine); why != "" {
			return invalid(fmt.Sprintf("line %d of the definition of done", i+1), why, "give each line some words")
		}
	}
	return nil
}

func checkAgent(r cofferdam.TaskRequest) error {
	if !agentName.MatchString(r.Agent) {
		return invalid("agent", "needs a name of lower case letters, digits, dots and hyphens", "use --agent claude or --agent command")
	}
	if r.Agent == "command" {
		if why := plain(r.Command, MaxCommand); why != "" {
			return invalid("command of the agent", why, "give --command TEXT with --agent command")
		}
	} else if r.Command != "" {
		return invalid("command of the agent", "only the agent \"command\" takes one", "leave --command out, or use --agent command")
	}
	return nil
}

func checkReach(r cofferdam.TaskRequest) error {
	if len(r.Allow) > MaxAllow {
		return invalid("allow list", fmt.Sprintf("%d items given, at most %d are taken", len(r.Allow), MaxAllow), "use wildcards or presets")
	}
	for i, a := range r.Allow {
		if why := plain(a, MaxHost); why != "" {
			return invalid(fmt.Sprintf("allow item %d", i+1), why, "give HOST[:PORT], *.HOST[:PORT], splice:HOST[:PORT], credentials:HOST[:PORT] or preset:NAME")
		}
	}
	if len(r.Image) > MaxPath || strings.ContainsRune(r.Image, 0) ||
		r.Image != "" && !imageName.MatchString(r.Image) && (!filepath.IsAbs(r.Image) || filepath.Clean(r.Image) != r.Image) {
		return invalid("image", "must be \"host\", a clean absolute path of a folder on the server, or the name of an image", "leave --image out for the host's programs")
	}
	if r.Tier != "" && !tierName.MatchString(r.Tier) {
		return invalid("tier", "is not the name of a tier", "cofferdam doctor lists them; leave --tier out for the server's own")
	}
	if r.Environment != "" && !environmentName.MatchString(r.Environment) {
		return invalid("environment", "must be \"none\" or the name of a folder in .devcontainer", "leave --environment out for the repository's own definition")
	}
	if len(r.Repo) > MaxPath || len(r.Model) > MaxPath {
		return invalid("name", "is too long", "list names with repo list and model list")
	}
	if r.Base == "" {
		return nil
	}
	if _, err := BranchRef(r.Base); err != nil {
		return invalid("base branch", err.Error(), "give the name of a branch, such as main")
	}
	return nil
}

func checkLimits(r cofferdam.TaskRequest) error {
	if math.IsNaN(r.Timeout) || r.Timeout < 0 || r.Timeout > MaxTimeout {
		return invalid("timeout", fmt.Sprintf("must be between 0 and %.0f seconds", MaxTimeout), "leave it out for the default")
	}
	if r.Rest != nil {
		if why := r.Rest.Check(); why != "" {
			return invalid("rest of the session", why, "leave it out for the server's")
		}
	}
	if r.Limits == nil {
		return nil
	}
	l := *r.Limits
	if l.Disk < 0 || l.Disk > maxBytes || l.Disk != 0 && l.Disk < minDisk {
		return invalid("limit of disk", fmt.Sprintf("%d bytes is not between %d MiB and %d TiB", l.Disk, minDisk>>20, maxBytes>>40),
			"give a size with its unit, such as 4GiB, or leave it out for the default")
	}
	for _, v := range []struct {
		name      string
		have, max int64
	}{
		{"memory", l.Memory, maxBytes},
		{"temp", l.Temp, maxBytes},
		{"pids", l.PIDs, maxCount},
		{"open files", l.OpenFiles, maxCount},
	} {
		if v.have < 0 || v.have > v.max {
			return invalid("limit of "+v.name, fmt.Sprintf("must be between 0 and %d", v.max), "leave it out for the default")
		}
	}
	if math.IsNaN(l.CPU) || l.CPU < 0 || l.CPU > maxCPU {
		return invalid("limit of cpu", fmt.Sprintf("must be between 0 and %d", maxCPU), "leave it out for the default")
	}
	return nil
}

func checkBudget(r cofferdam.TaskRequest) error {
	if r.Budget == nil {
		return nil
	}
	if what, why, flag := r.Budget.Check(); what != "" {
		return invalid(what, why, "give "+flag+" what is between them, or leave it out")
	}
	return nil
}

func checkContract(r cofferdam.TaskRequest) error {
	if r.Contract == nil {
		return nil
	}
	if why := r.Contract.Check(); why != "" {
		return invalid("scope", why, "name files and folders/ as git ls-files shows them")
	}
	return nil
}

// BranchRef returns the full reference of a branch named "main" or
// "refs/heads/main". Names that git would refuse, or that belong to
// Cofferdam's own attempts, are errors.
func BranchRef(name string) (cofferdam.Ref, error) {
	short := strings.TrimPrefix(name, "refs/heads/")
	switch {
	case short == "" || len(short) > 200:
		return "", fmt.Errorf("must be 1 to 200 bytes long")
	case strings.HasPrefix(short, "refs/"):
		return "", fmt.Errorf("%q is no branch", name)
	case strings.HasPrefix(short, "cofferdam/"):
		return "", fmt.Errorf("%q belongs to an attempt of a task", name)
	case short == "@" || short == "HEAD" || strings.HasPrefix(short, "-") || strings.HasSuffix(short, "."),
		strings.Contains(short, "..") || strings.Contains(short, "@{") || strings.ContainsAny(short, " ~^:?*[\\\x7f"):
		return "", fmt.Errorf("%q is no name git takes", name)
	}
	for _, part := range strings.Split(short, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return "", fmt.Errorf("%q is no name git takes", name)
		}
	}
	for _, r := range short {
		if r < 0x20 || r == utf8.RuneError {
			return "", fmt.Errorf("%q is no name git takes", name)
		}
	}
	return cofferdam.Ref("refs/heads/" + short), nil
}

// Branch returns the one ref that an attempt of a task may write.
func Branch(number int64, attempt int) cofferdam.Ref {
	return cofferdam.Ref(fmt.Sprintf("refs/heads/cofferdam/t-%d-%d", number, attempt))
}
