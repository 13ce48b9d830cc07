package store

import (
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/task"
)

// TestMessagesStay tries to change by SQL what people said.
func TestMessagesStay(t *testing.T) {
	p := open(t)
	v := p.create(t, "")
	m := cofferdam.TaskMessage{Task: v.ID, Text: "hello", By: v.By, Time: at(3)}
	if _, err := p.AddMessage(t.Context(), m, func(task.Hearing, cofferdam.TaskMessage) error { return nil }); err != nil {
		t.Fatal(err)
	}
	db := raw(t, p)
	insert := `INSERT INTO message SELECT organization, project, task, `
	// In this order: the last of them ends the task, whatever comes of the rest.
	for _, c := range []struct{ query, want string }{
		{`UPDATE message SET text = 'else'`, "cannot be changed"},
		{`DELETE FROM message`, "kept"},
		{insert + `1, 'again', by_kind, by_name, time FROM message`, "follows"},
		{insert + `3, 'a gap', by_kind, by_name, time FROM message`, "follows"},
		{insert + `2, 'an agent''s', 'agent', by_name, time FROM message`, "CHECK"},
		{`UPDATE task SET state = 'cancelled'; ` + insert + `2, 'late', by_kind, by_name, time FROM message`, "not ended"},
	} {
		if _, err := db.ExecContext(t.Context(), c.query); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.query, err)
		}
	}
	all, err := p.Messages(t.Context(), v.ID, 0)
	if err != nil || len(all) != 1 || all[0].Text != "hello" || !all[0].Time.Equal(at(3)) || all[0].By != v.By {
		t.Errorf("%+v %v", all, err)
	}
}
