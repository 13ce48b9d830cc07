package store

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/task"
)

// raw opens the file the way an attacker on the machine would: another
// connection, without any of our code, and without our pragmas.
func raw(t *testing.T, p place) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", p.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestDoneByRawSQL attacks the done gate with SQL of one's own. Whatever program
// writes: a task is not done without a receipt, an approval and a landing for
// exactly its commit.
func TestDoneByRawSQL(t *testing.T) {
	type stage func(*testing.T, place) cofferdam.Task
	stages := map[string]stage{
		"queued":    func(t *testing.T, p place) cofferdam.Task { return p.create(t, "") },
		"verifying": func(t *testing.T, p place) cofferdam.Task { return p.verifying(t) },
		"in review": func(t *testing.T, p place) cofferdam.Task { return p.inReview(t) },
		"approved": func(t *testing.T, p place) cofferdam.Task {
			v := p.inReview(t)
			p.approve(t, v)
			return v
		},
		"landing": func(t *testing.T, p place) cofferdam.Task {
			v := p.inReview(t)
			p.approve(t, v)
			p.ask(t, v)
			return v
		},
	}
	attacks := []string{
		`UPDATE task SET state = 'done' WHERE id = '%[1]s'`,
		`UPDATE task SET state = 'done', landed = head WHERE id = '%[1]s'`,
		`UPDATE task SET state = 'done', head = '%[3]s', landed = '%[3]s' WHERE id = '%[1]s'`,
		`UPDATE task SET state = 'done', head = '', landed = '' WHERE id = '%[1]s'`,
		`UPDATE OR REPLACE task SET state = 'done', landed = head WHERE id = '%[1]s'`,
		`UPDATE OR IGNORE task SET state = 'done', landed = head WHERE id = '%[1]s'`,
		`REPLACE INTO task SELECT id, organization, project, number, request, repo, 'done', '', '', attempt, branch, base, base_commit, head, receipt, regression_only, head, usage, by_kind, by_name, created, updated FROM task WHERE id = '%[1]s'`,
		`INSERT INTO task SELECT 't-new', organization, project, 999, request, repo, 'done', '', '', 1, branch, base, base_commit, head, receipt, regression_only, head, usage, by_kind, by_name, created, updated FROM task WHERE id = '%[1]s'`,
		`INSERT INTO task SELECT id, organization, project, number, request, repo, 'queued', '', '', 1, branch, base, base_commit, '', '', 0, '', usage, by_kind, by_name, created, updated FROM task WHERE id = '%[1]s' ON CONFLICT DO UPDATE SET state = 'done', landed = head`,
		`INSERT INTO transition VALUES ('queued', 'done'), ('verifying', 'done')`,
		`DELETE FROM transition`,
		`DELETE FROM task WHERE id = '%[1]s'`,
		`INSERT INTO receipt SELECT 'c-forged', organization, project, id, attempt, '%[3]s', '{}', x'00', 'now' FROM task WHERE id = '%[1]s'`,
		`INSERT INTO approval SELECT organization, project, id, '%[3]s', 'person', 'ada', 'now' FROM task WHERE id = '%[1]s'`,
		`INSERT INTO approval SELECT organization, project, id, head, 'agent', 'claude', 'now' FROM task WHERE id = '%[1]s'`,
		`INSERT INTO landing SELECT organization, project, id, attempt, head, base, 'person', 'ada', 'now', 'now' FROM task WHERE id = '%[1]s'`,
		`INSERT INTO landing SELECT organization, project, id, attempt, '%[3]s', base, 'person', 'ada', 'now', NULL FROM task WHERE id = '%[1]s'`,
	}
	for name, reach := range stages {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			v := reach(t, p)
			db := raw(t, p)
			for _, a := range attacks {
				text := strings.NewReplacer("%[1]s", string(v.ID), "%[3]s", string(other)).Replace(a)
				if _, err := db.Exec(text); err == nil && !strings.Contains(a, "OR IGNORE") {
					t.Errorf("taken: %s", text)
				}
				var done int
				if err := db.QueryRow(`SELECT COUNT(*) FROM task WHERE state = 'done'`).Scan(&done); err != nil || done != 0 {
					t.Fatalf("%d tasks are done (%v) after: %s", done, err, text)
				}
			}
			if now, err := p.TaskByID(t.Context(), v.ID); err != nil || now.State != v.State || now.Head != v.Head {
				t.Errorf("after the attacks the task is %s at %q (%v), want %s at %q", now.State, now.Head, err, v.State, v.Head)
			}
		})
	}
}

// TestEvidenceStays tries to change or remove what was proved, approved, landed.
func TestEvidenceStays(t *testing.T) {
	p := open(t)
	v := p.inReview(t)
	p.approve(t, v)
	p.ask(t, v)
	if err := p.FinishLanding(t.Context(), v.ID, v.Head, at(9)); err != nil {
		t.Fatal(err)
	}
	// The control: with all three the same task can be done.
	done, err := p.ChangeTask(t.Context(), v.ID, func(v *cofferdam.Task) error { v.State, v.Landed = cofferdam.Done, v.Head; return nil })
	if err != nil || done.State != cofferdam.Done {
		t.Fatalf("with receipt, approval and landing: %s, %v", done.State, err)
	}
	db := raw(t, p)
	for _, a := range []string{
		`UPDATE receipt SET note = x'01'`, `UPDATE receipt SET commit_id = '2'`, `DELETE FROM receipt`,
		`REPLACE INTO receipt SELECT id, organization, project, task, attempt, commit_id, '{}', x'01', created FROM receipt`,
		`UPDATE approval SET by_name = 'eve'`, `DELETE FROM approval`,
		`REPLACE INTO approval SELECT organization, project, task, commit_id, by_kind, 'eve', time FROM approval`,
		`UPDATE landing SET landed = 'never'`, `UPDATE landing SET landed = NULL`, `DELETE FROM landing`,
		`UPDATE task SET state = 'queued'`, `UPDATE task SET head = '2', landed = '2'`, `UPDATE task SET comment = 'x'`,
		`UPDATE task SET request = '{}'`, `DELETE FROM task`, `DELETE FROM transition`, `UPDATE transition SET to_state = 'done'`,
	} {
		if _, err := db.Exec(a); err == nil {
			t.Errorf("taken: %s", a)
		}
	}
}

// TestMovesByRawSQL tries every pair of states against the file's own table.
func TestMovesByRawSQL(t *testing.T) {
	p := open(t)
	rows, err := raw(t, p).Query(`SELECT from_state, to_state FROM transition`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var have [][2]cofferdam.TaskState
	for rows.Next() {
		var m [2]cofferdam.TaskState
		if err := rows.Scan(&m[0], &m[1]); err != nil {
			t.Fatal(err)
		}
		have = append(have, m)
	}
	slices.SortFunc(have, func(a, b [2]cofferdam.TaskState) int { return slices.Compare(a[:], b[:]) })
	if want := task.Transitions(); !slices.Equal(have, want) {
		t.Fatalf("the file's states differ from the machine's:\n%v\n%v", have, want)
	}
	v := p.create(t, "")
	for _, to := range []cofferdam.TaskState{cofferdam.Running, cofferdam.Verifying, cofferdam.InReview, cofferdam.Done, cofferdam.NothingToDo, cofferdam.TimedOut, "finished", ""} {
		_, err := p.ChangeTask(t.Context(), v.ID, func(v *cofferdam.Task) error { v.State = to; return nil })
		wantKind(t, err, cofferdam.Conflict)
	}
}

func TestApprovalIsForOneCommit(t *testing.T) {
	p := open(t)
	ctx := t.Context()
	v := p.verifying(t)
	_, err := p.AddApproval(ctx, v, cofferdam.Approval{Commit: v.Head, By: v.By, Time: at(1)})
	wantKind(t, err, cofferdam.Conflict) // not in review yet
	v = p.inReview(t)
	_, err = p.AddApproval(ctx, v, cofferdam.Approval{Commit: other, By: v.By, Time: at(1)})
	wantKind(t, err, cofferdam.Conflict)
	_, err = p.AddApproval(ctx, v, cofferdam.Approval{Commit: v.Head, By: cofferdam.Principal{Kind: cofferdam.Agent, Name: "claude"}, Time: at(1)})
	wantKind(t, err, cofferdam.Conflict)
	wantKind(t, p.AskLanding(ctx, task.Landing{Scope: v.Scope, Task: v.ID, Attempt: 1, Commit: v.Head, Base: v.Base, By: v.By, Asked: at(1)}), cofferdam.Conflict)
	first := p.approve(t, v)
	again, err := p.AddApproval(ctx, v, cofferdam.Approval{Commit: v.Head, By: first.By, Time: at(50)})
	if err != nil || again != first {
		t.Fatalf("approving again: %v, %v; want the first word", again, err)
	}
	eve := cofferdam.Approval{Commit: v.Head, By: cofferdam.Principal{Kind: cofferdam.Person, Name: "eve"}, Time: at(1)}
	for range 2 {
		if more, err := p.AddApproval(ctx, v, eve); err != nil || more.By != eve.By {
			t.Fatalf("another's word: %v, %v", more, err)
		}
	}
	_, err = p.AddApproval(ctx, v, cofferdam.Approval{Commit: v.Head, By: cofferdam.Principal{Kind: cofferdam.Agent, Name: "claude"}, Time: at(51)})
	wantKind(t, err, cofferdam.Conflict)
	if words, err := p.Approvals(ctx, v.ID, v.Head); err != nil || len(words) != 2 || words[0] != first || words[1].By != eve.By {
		t.Fatalf("words: %v, %v; want the first first", words, err)
	}
	p.ask(t, v)
	if err := p.AskLanding(ctx, p.ask(t, v)); err != nil {
		t.Fatalf("asking twice: %v", err)
	}
	if err := p.DropLanding(ctx, v.ID, v.Head); err != nil {
		t.Fatal(err)
	}
	_, err = p.LandingOf(ctx, v.ID, v.Head)
	wantKind(t, err, cofferdam.NotFound)
	// A new attempt has a new commit, and nothing of the old word holds for it.
	v, err = p.ChangeTask(ctx, v.ID, func(v *cofferdam.Task) error {
		v.State, v.Attempt, v.Head, v.Receipt = cofferdam.Queued, 2, "", ""
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Approval(ctx, v.ID, other)
	wantKind(t, err, cofferdam.NotFound)
}

// TestEachRuleOfDone takes the other rules away, so that each of the three that
// guard "done" has to hold by itself.
func TestEachRuleOfDone(t *testing.T) {
	land := `INSERT INTO landing SELECT organization, project, id, attempt, head, base, 'person', 'ada', 'now', 'now' FROM task`
	approve := `INSERT INTO approval SELECT organization, project, id, head, 'person', 'ada', 'now' FROM task`
	for _, c := range []struct {
		name string
		text []string
		says string
	}{
		{"no approval", []string{`DROP TRIGGER landing_insert`, land, `UPDATE task SET state = 'done', landed = head`}, "approval of a person"},
		{"no landing", []string{approve, `UPDATE task SET state = 'done', landed = head`}, "has landed"},
		{"receipt of another", []string{approve, `DROP TRIGGER landing_insert`, land, `UPDATE task SET state = 'done', landed = head, receipt = 'c-other'`}, "receipt for exactly its commit"},
		{"receipt for another commit", []string{approve, `DROP TRIGGER landing_insert`, land, `DROP TRIGGER receipt_update`, `UPDATE receipt SET commit_id = '2'`, `UPDATE task SET state = 'done', landed = head`}, "receipt for exactly its commit"},
		{"all there", []string{approve, `DROP TRIGGER landing_insert`, land, `UPDATE task SET state = 'done', landed = head`}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t)
			p.inReview(t)
			db := raw(t, p)
			var err error
			for i, text := range c.text {
				if _, err = db.Exec(text); err != nil && i < len(c.text)-1 {
					t.Fatalf("%s: %v", text, err)
				}
			}
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v, want %q", err, c.says)
			}
		})
	}
}
