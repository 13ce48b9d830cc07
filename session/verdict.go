package session

import (
	"slices"
	"strings"

	"cofferdam"
)

// Bounds of what a result says of its log, which has all: a receipt has to have room
// for it, whatever an agent does. Source: docs/SPECIFICATION.md, "Trace and proof".
const (
	maxJudged = 100  // policies, and answers of people
	maxMarked = 20   // pushes beyond the scope
	maxStray  = 1000 // bytes of one text
)

// verdicts is what a session's log says of its policy, its task's scope, and
// people's part in both.
type verdicts struct {
	judged []cofferdam.Judged
	passed []cofferdam.Passed
	strays cofferdam.Strays
}

// note learns from one event.
func (v *verdicts) note(e cofferdam.Event) {
	if j, ok := cofferdam.JudgedBy(e); ok {
		v.judged = capped(append(v.judged, j))
	}
	if e.Rule == cofferdam.RuleScope && e.Verdict == cofferdam.Refused {
		v.strays.Refused++
	}
	if e.Verdict != cofferdam.Allowed {
		return
	}
	if beyond := clip(e.Fields[cofferdam.FieldBeyond], maxStray); beyond != "" && len(v.strays.Marked) < maxMarked && !slices.Contains(v.strays.Marked, beyond) {
		v.strays.Marked = append(v.strays.Marked, beyond)
	}
	p := cofferdam.Passed{Session: e.Session, Question: cofferdam.QuestionID(e.Fields[cofferdam.FieldAnswer]), By: e.Fields[cofferdam.FieldAnswers]}
	if id, opened := strings.CutPrefix(e.Rule, cofferdam.RuleGiven); opened {
		p.Question, p.Opened = cofferdam.QuestionID(id), true
	}
	if p.Question == "" {
		return
	}
	i := slices.IndexFunc(v.passed, func(o cofferdam.Passed) bool { return o.Question == p.Question })
	if i < 0 {
		p.First = clip(e.Kind+" "+e.Resource, maxStray)
		v.passed, i = append(v.passed, p), len(v.passed)
		if i == maxJudged {
			v.passed = v.passed[:maxJudged]
			return
		}
	}
	v.passed[i].Opened = v.passed[i].Opened || p.Opened
	v.passed[i].Acts++
}

// capped takes the one in the middle away if there is one too many: the first and
// the last are what is asked for.
func capped[T any](list []T) []T {
	if len(list) > maxJudged {
		list = slices.Delete(list, maxJudged/2, maxJudged/2+1)
	}
	return list
}
