package git

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/internal/repo"
)

const (
	id1 = "1111111111111111111111111111111111111111"
	id2 = "2222222222222222222222222222222222222222"
)

// pkt makes one packet.
func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

func TestReadPush(t *testing.T) {
	one := pkt(id1 + " " + id2 + " refs/heads/x\x00 report-status side-band-64k\n")
	for _, c := range []struct {
		name, in string
		refs     string // of the updates
		err      string
	}{
		{"one", one + "0000PACK", "refs/heads/x", ""},
		{"upper-case length", strings.ToUpper(one[:4]) + one[4:] + "0000PACK", "refs/heads/x", ""},
		{"no newline, no capabilities", pkt(id1+" "+id2+" refs/heads/x") + "0000PACK", "refs/heads/x", ""},
		{"two", one + pkt(id1+" "+id2+" refs/heads/y\n") + "0000PACK", "refs/heads/x refs/heads/y", ""},
		{"shallow first", pkt("shallow "+id1) + one + "0000PACK", "refs/heads/x", ""},
		{"space in the ref", pkt(id1+" "+id2+" refs/heads/x y") + "0000PACK", "refs/heads/x y", ""},
		{"options", pkt(id1+" "+id2+" refs/heads/x\x00push-options") + "0000" + pkt("a") + "0000PACK", "refs/heads/x", ""},
		{"probe", "0000", "", "empty push"},
		{"nothing", "", "", "cut off"},
		{"length 1", "0001", "", "does not belong"},
		{"length 3", "0003", "", "does not belong"},
		{"too long", "fff1" + strings.Repeat("x", 65533), "", "does not belong"},
		{"not hexadecimal", "00g0", "", "no packet length"},
		{"signed number", "+010", "", "no packet length"},
		{"cut in a packet", one[:60], "", "cut off"},
		{"cut before the flush", one, "", "cut off"},
		{"second NUL", pkt(id1+" "+id2+" refs/heads/x\x00a\x00b") + "0000", "", "capabilities"},
		{"NUL in the second", one + pkt(id1+" "+id2+" refs/heads/y\x00a") + "0000", "", "capabilities"},
		{"certificate", pkt("push-cert\x00 push-cert\n") + "0000", "", "signed pushes"},
		{"certificate later", one + pkt("push-cert\n") + "0000", "", "signed pushes"},
		{"sha256", pkt(strings.Repeat("1", 64)+" "+strings.Repeat("2", 64)+" refs/heads/x") + "0000", "", "sha1"},
		{"mixed lengths", pkt(id1+" "+strings.Repeat("2", 64)+" refs/heads/x") + "0000", "", "sha1"},
		{"upper-case id", pkt(strings.Repeat("A", 40)+" "+id2+" refs/heads/x") + "0000", "", "no ref update"},
		{"short id", pkt(id1[:39]+" "+id2+" refs/heads/x") + "0000", "", "no ref update"},
		{"no ref", pkt(id1+" "+id2+" ") + "0000", "", "no ref update"},
		{"empty packet", "0004" + "0000", "", "no ref update"},
		{"long ref", pkt(id1+" "+id2+" "+strings.Repeat("x", maxRefName+1)) + "0000", "", "no ref update"},
		{"shallow after", one + pkt("shallow "+id1) + "0000", "", "no ref update"},
		{"shallow alone", pkt("shallow "+id1) + "0000", "", "names no ref"},
		{"bad shallow", pkt("shallow x") + one + "0000", "", "shallow"},
		{"many options", pkt(id1+" "+id2+" refs/heads/x\x00push-options") + "0000" + strings.Repeat(pkt("a"), maxOptions+1), "", "options"},
		{"many refs", strings.Repeat(pkt(id1+" "+id2+" refs/heads/y\n"), maxCommands+1) + "0000", "", "more than"},
		{"many bytes", strings.Repeat(pkt(id1+" "+id2+" "+strings.Repeat("y", 4000)), 2000) + "0000", "", "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := bufio.NewReader(strings.NewReader(c.in))
			p, err := readPush(r)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("readPush: %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var refs []string
			for _, u := range p.updates {
				refs = append(refs, string(u.Ref))
			}
			if got := strings.Join(refs, " "); got != c.refs {
				t.Errorf("refs %q, want %q", got, c.refs)
			}
			if rest, _ := io.ReadAll(r); string(rest) != "PACK" {
				t.Errorf("left for the pack: %q", rest)
			}
		})
	}
}

func TestReport(t *testing.T) {
	p := push{updates: []repo.Update{{Ref: "refs/heads/a"}, {Ref: "refs/heads/b"}}, caps: []string{"report-status", "side-band-64k"}}
	status := pkt("unpack ok\n") + pkt("ng refs/heads/a no way\n") + pkt("ok refs/heads/b\n") + "0000"
	got := string(p.report(map[cofferdam.Ref]string{"refs/heads/a": "no\nway"}, []string{"why"}))
	if want := pkt("\x02why\n") + pkt("\x01"+status) + "0000"; got != want {
		t.Errorf("report %q, want %q", got, want)
	}
	p.caps = []string{"report-status"}
	if got := string(p.report(map[cofferdam.Ref]string{"refs/heads/a": "no way"}, nil)); got != status {
		t.Errorf("plain report %q, want %q", got, status)
	}
	p.caps = nil
	if got := p.report(nil, []string{"x"}); len(got) != 0 {
		t.Errorf("a client that wants no report gets %q", got)
	}
}

// FuzzReadPush: the parser never fails in another way than by an error, keeps
// within its bounds, and what it read writes back as what it read.
func FuzzReadPush(f *testing.F) {
	one := pkt(id1 + " " + id2 + " refs/heads/x\x00 report-status side-band-64k\n")
	for _, s := range []string{one + "0000PACK", "0000", "0003", pkt("shallow "+id1) + one + "0000", one + pkt(id2+" "+id1+" refs/heads/y") + "0000", pkt("push-cert\x00x") + "0000", "fff1", "FFF0"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := readPush(bufio.NewReader(bytes.NewReader(in)))
		if err != nil {
			if errors.Is(err, errProbe) && !bytes.HasPrefix(in, []byte("0000")) {
				t.Errorf("%q was read as a probe", in)
			}
			return
		}
		if len(p.updates) == 0 || len(p.updates) > maxCommands {
			t.Fatalf("%d updates", len(p.updates))
		}
		var again bytes.Buffer
		for _, s := range p.shallow {
			packet(&again, "shallow "+string(s))
		}
		for i, u := range p.updates {
			line := string(u.Old) + " " + string(u.New) + " " + string(u.Ref)
			if i == 0 {
				line += "\x00"
			}
			packet(&again, line)
		}
		again.WriteString("0000")
		q, err := readPush(bufio.NewReader(&again))
		if err != nil || len(q.updates) != len(p.updates) || q.updates[0] != p.updates[0] {
			t.Errorf("read again: %v, %+v; first %+v", err, q.updates, p.updates)
		}
	})
}
