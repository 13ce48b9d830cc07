package rehearsal

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzParse: no script, however broken, panics; a good one answers everything.
func FuzzParse(f *testing.F) {
	f.Add(script)
	f.Add(everyPart)
	f.Add("turn 1\nedit a\n- x\n+ y\n- z")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		q := question{turn: 1, asked: text, tools: []tool{{name: "apply_patch"}, {name: "bash"}}}
		a := s.answerTo(q, 1)
		if len(text) < 1000 && !strings.Contains(text, "huge") {
			m := message{question: &q, id: q.digest(), parts: q.parts(a.steps)}
			for _, c := range protocols {
				if !json.Valid(encode(c.p.whole(m))) {
					t.Errorf("%s: broken answer to %q", c.name, text)
				}
			}
		}
	})
}

// FuzzRead: no request panics any protocol.
func FuzzRead(f *testing.F) {
	for _, c := range protocols {
		f.Add([]byte(c.body(true, true, []round{{asked: "x"}, {result: "y"}})))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, c := range protocols {
			q := question{turn: 1}
			if c.p.read(body, &q) == nil {
				q.parts([]step{{verb: "bash", text: "x"}, {verb: "edit", name: "a", text: "b"}})
				if q.schema != nil {
					q.oneWord()
				}
			}
		}
	})
}
