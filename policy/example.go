package policy

import (
	"fmt"
	"net/url"
	"strings"

	"cofferdam"
)

// addTests reads the examples.
func (d *Document) addTests(files []testFile) error {
	if len(files) > maxTests {
		return fmt.Errorf("it has more than %d tests", maxTests)
	}
	for i, f := range files {
		t := Test{Name: f.Name, Expect: f.Expect}
		if t.Name == "" {
			t.Name = fmt.Sprintf("test %d", i+1)
		}
		if f.Expect != Allow && f.Expect != Ask && f.Expect != Deny {
			return fmt.Errorf("test %d: expect is allow, ask or deny, not %q", i+1, shorten(string(f.Expect)))
		}
		var err error
		switch {
		case f.URL != "" && f.On == "":
			t.Query, err = ParseURL(f.URL, f.Method)
			if f.Action != "" {
				t.Query.Action = f.Action
			}
		case f.URL == "" && f.On != "":
			t.Query, err = ParseAct(f.Action, f.On)
		default:
			err = fmt.Errorf("it has either a url, or an action and what it is on")
		}
		if err != nil {
			return fmt.Errorf("test %d: %w", i+1, err)
		}
		d.Tests = append(d.Tests, t)
	}
	return nil
}

// ParseURL returns the question of a request to an absolute http or https URL;
// method "" is GET.
func ParseURL(text, method string) (Query, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return Query{}, fmt.Errorf("%q is no http or https address of a host", shorten(text))
	}
	q := Query{Action: HTTP, Host: cofferdam.ParseHost(u.Hostname()), Method: "GET", Path: u.EscapedPath(), Port: 443}
	if method != "" {
		q.Method = strings.ToUpper(method)
	}
	if q.Path == "" {
		q.Path = "/"
	}
	if u.Scheme == "http" {
		q.Port = 80
	}
	if p := u.Port(); p != "" {
		if q.Port, err = parsePort(p); err != nil {
			return Query{}, err
		}
	}
	return q, CheckHost(q.Host)
}

// ParseAct returns the question of an action about anything but a host.
func ParseAct(action, on string) (Query, error) {
	q := Query{Action: action}
	switch s := sectionOf(action); {
	case s == "" || s == Egress:
		return q, fmt.Errorf("%q is no action with a name; give a url for requests", shorten(action))
	case on == "":
		return q, fmt.Errorf("%s of nothing cannot be asked", action)
	case action == Fetch:
		q.Repo = cofferdam.RepoID(on)
	case action == Push || action == Land:
		q.Ref = cofferdam.Ref(on)
	case action == Call:
		q.Model = on
	default:
		q.Name = on
	}
	return q, nil
}
