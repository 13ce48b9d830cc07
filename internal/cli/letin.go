package cli

import (
	"regexp"
	"strings"

	"cofferdam"
	"cofferdam/policy"
)

// plainHost is a host, maybe with a port, that means nothing else to a shell or as an
// entry of a policy: a box chooses the names that it is refused.
var plainHost = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?$`)

// letIn is the command by which a person lets a task have what it was refused,
// because nothing allows it; "" where no command does so.
func letIn(t cofferdam.Task, e cofferdam.Event) (command, entry string) {
	if e.Verdict != cofferdam.Refused || e.Rule != policy.DefaultDeny {
		return "", ""
	}
	if c := t.Request.Contract; c != nil && len(c.Hosts) > 0 {
		return "", "" // its scope may be what leaves the host out, and an opening does not widen that
	}
	entry = e.Resource
	switch e.Kind {
	case cofferdam.EventRequest:
		_, entry, _ = strings.Cut(entry, " ")
		entry, _, _ = strings.Cut(entry, "/")
	case cofferdam.EventDNS, cofferdam.EventConnect:
	default:
		return "", ""
	}
	for _, usual := range []string{":80", ":443"} {
		entry = strings.TrimSuffix(entry, usual)
	}
	if !plainHost.MatchString(entry) {
		return "", ""
	}
	if _, err := policy.ParseOpening(policy.HTTP, entry); err != nil {
		return "", ""
	}
	if e.Fields[cofferdam.FieldCredential] != "" {
		entry = policy.CredentialsPrefix + entry
	}
	return "cofferdam approval open " + t.Short() + " " + entry + " --for 30m", entry
}
