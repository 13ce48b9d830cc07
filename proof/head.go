package proof

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"cofferdam"
)

// Head says what a log held at one moment.
type Head struct {
	Session cofferdam.SessionID `json:"session,omitempty"` // empty: the host's log
	Size    uint64              `json:"size"`              // events
	Root    cofferdam.Digest    `json:"root"`
	Time    time.Time           `json:"time"`
}

// HeadOf returns the head of a tree.
func HeadOf(session cofferdam.SessionID, t *Tree, at time.Time) Head {
	return Head{Session: session, Size: t.Size(), Root: digest(t.Root()), Time: at.UTC()}
}

// Same says whether h and o are heads of the same log with the same content.
func (h Head) Same(o Head) bool {
	return h.Session == o.Session && h.Size == o.Size && h.Root == o.Root
}

// SignHead returns h as a signed checkpoint.
func (s Signer) SignHead(h Head) ([]byte, error) {
	root, err := parseDigest(h.Root)
	if err != nil {
		return nil, fmt.Errorf("sign head: %w", err)
	}
	origin := s.Name()
	if h.Session != "" {
		origin += "/" + string(h.Session)
	}
	return s.sign(fmt.Sprintf("%s\n%d\n%s\ntime %s\n", origin, h.Size, root, h.Time.UTC().Format(time.RFC3339Nano)))
}

// OpenHead checks a signed checkpoint against a public key.
func OpenHead(msg []byte, public string) (Head, error) {
	v, err := verifier(public)
	if err != nil {
		return Head{}, err
	}
	text, err := open(msg, v)
	if err != nil {
		return Head{}, tampered("check head", err)
	}
	h, err := parseHead(text, v.Name())
	if err != nil {
		return Head{}, tampered("check head", err)
	}
	return h, nil
}

// parseHead parses the text of a checkpoint signed by the key called name.
func parseHead(text, name string) (Head, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || lines[4] != "" {
		return Head{}, fmt.Errorf("head has %d lines, want 4", len(lines)-1)
	}
	var h Head
	if session, ok := strings.CutPrefix(lines[0], name+"/"); ok && session != "" {
		h.Session = cofferdam.SessionID(session)
	} else if lines[0] != name {
		return Head{}, fmt.Errorf("head has the origin %.80q", lines[0])
	}
	if _, err := fmt.Sscanf(lines[1], "%d", &h.Size); err != nil || fmt.Sprint(h.Size) != lines[1] {
		return Head{}, fmt.Errorf("head has the size %.40q", lines[1])
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil || root.String() != lines[2] {
		return Head{}, fmt.Errorf("head has the root %.80q", lines[2])
	}
	h.Root = digest(root)
	at, ok := strings.CutPrefix(lines[3], "time ")
	if h.Time, err = time.Parse(time.RFC3339Nano, at); !ok || err != nil {
		return Head{}, fmt.Errorf("head has the line %.80q, want its time", lines[3])
	}
	return h, nil
}

// tampered wraps err as evidence that does not hold.
func tampered(subject string, err error) *cofferdam.Error {
	return &cofferdam.Error{Op: "proof.Verify", Kind: cofferdam.Tampered, Subject: subject, Err: err}
}
