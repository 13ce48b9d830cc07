package task_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/session"
	"cofferdam/task"
)

func (d desk) send(t *testing.T, v cofferdam.Task, text string) error {
	t.Helper()
	_, err := d.Send(t.Context(), d.scope, ada, v.Short(), text)
	return err
}

// TestSendOnlyWhereSomebodyHears tries every state in which a task can be.
func TestSendOnlyWhereSomebodyHears(t *testing.T) {
	d := open(t)
	v := d.create(t)
	for i, to := range []cofferdam.TaskState{"", cofferdam.Preparing, cofferdam.Running} {
		if to != "" {
			v = d.advance(t, v, to, nil)
		}
		m, err := d.Send(t.Context(), d.scope, ada, v.Short(), "leave the API as it is\n")
		if err != nil || m.Number != int64(i+1) || m.Task != v.ID || m.By != ada || m.While != v.State || m.Text != "leave the API as it is\n" {
			t.Errorf("%s: %+v %v", v.State, m, err)
		}
	}
	last := d.rec.events[len(d.rec.events)-1]
	if last.Kind != cofferdam.EventTaskMessage || last.Actor != ada || last.Fields["number"] != "3" || strings.Contains(last.Fields["sha256"], "API") {
		t.Errorf("on record: %+v", last)
	}
	ended := map[cofferdam.TaskState]cofferdam.Task{cofferdam.InReview: d.inReview(t)}
	for _, to := range []cofferdam.TaskState{cofferdam.Blocked, cofferdam.Failed, cofferdam.Cancelled} {
		ended[to] = d.advance(t, d.create(t), to, nil)
	}
	for _, to := range []cofferdam.TaskState{cofferdam.Verifying, cofferdam.TimedOut, cofferdam.NothingToDo} {
		ended[to] = d.advance(t, d.advance(t, d.advance(t, d.create(t), cofferdam.Preparing, nil), cofferdam.Running, nil), to, nil)
	}
	for state, v := range ended {
		err := d.send(t, v, "too late")
		wantKind(t, err, cofferdam.Conflict)
		if cofferdam.HintOf(err) == "" || !strings.Contains(err.Error(), string(state)) {
			t.Errorf("%s: %v (%s)", state, err, cofferdam.HintOf(err))
		}
	}
}

func TestSendBadInput(t *testing.T) {
	d := open(t)
	v := d.create(t)
	for name, text := range map[string]string{
		"empty": "", "blank": " \n\t", "binary": "\xff\xfe", "a zero byte": "a\x00b", "too long": strings.Repeat("x", task.MaxMessage+1),
	} {
		if err := d.send(t, v, text); cofferdam.KindOf(err) != cofferdam.Invalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := d.Send(t.Context(), d.scope, claude, v.Short(), "let me")
	wantKind(t, err, cofferdam.Forbidden)
	_, err = d.Send(t.Context(), d.scope, ada, "t-99", "hello")
	wantKind(t, err, cofferdam.NotFound)
	_, err = d.Send(t.Context(), cofferdam.Scope{Organization: "o-x", Project: "p-x"}, ada, v.Short(), "hello")
	wantKind(t, err, cofferdam.NotFound)
	if err := d.send(t, v, strings.Repeat("x", task.MaxMessage)); err != nil {
		t.Error(err)
	}
	d.rec.fail = errors.New("disk full")
	wantKind(t, d.send(t, v, "unrecorded"), cofferdam.Unavailable)
	d.rec.fail = nil
	if all, err := d.store.Messages(t.Context(), v.ID, 0); err != nil || len(all) != 1 {
		t.Errorf("kept: %d %v", len(all), err)
	}
}

// TestMessagesAreBounded sends from many hands at once: numbers have no gap, and
// what is over the bound is refused.
func TestMessagesAreBounded(t *testing.T) {
	d := open(t)
	v := d.create(t)
	var wg sync.WaitGroup
	refused := make(chan error, task.MaxMessages+3)
	for range task.MaxMessages + 3 {
		wg.Go(func() {
			if err := d.send(t, v, "more"); err != nil {
				refused <- err
			}
		})
	}
	wg.Wait()
	close(refused)
	for err := range refused {
		wantKind(t, err, cofferdam.Exhausted)
	}
	all, err := d.store.Messages(t.Context(), v.ID, 0)
	if err != nil || len(all) != task.MaxMessages {
		t.Fatalf("kept %d, %v", len(all), err)
	}
	for i, m := range all {
		if m.Number != int64(i+1) {
			t.Errorf("number %d at %d", m.Number, i)
		}
	}
	if some, err := d.store.Messages(t.Context(), v.ID, 60); err != nil || len(some) != task.MaxMessages-60 || some[0].Number != 61 {
		t.Errorf("after 60: %v %v", some, err)
	}
}

// TestNoMessageIsLostAtTheEnd holds that at the end of an agent a message is
// either found by the session or refused to whoever sends it, never neither.
func TestNoMessageIsLostAtTheEnd(t *testing.T) {
	d := open(t)
	v := d.advance(t, d.advance(t, d.create(t), cofferdam.Preparing, nil), cofferdam.Running, nil)
	plan := session.Plan{Scope: d.scope, ID: cofferdam.SessionID(cofferdam.NewID("s")), Task: v.ID, Attempt: 1, Phase: gateway.Work}
	if err := d.store.BeginSession(t.Context(), "work", 1, plan); err != nil {
		t.Fatal(err)
	}
	sent := make(chan int64)
	go func() {
		n := int64(0)
		for d.send(t, v, "more") == nil {
			n++
		}
		sent <- n
	}()
	heard := int64(0)
	for {
		more, err := d.store.LastMessages(t.Context(), plan.ID, v.ID, heard)
		if err != nil {
			t.Fatal(err)
		}
		if len(more) == 0 {
			break
		}
		heard += int64(len(more))
	}
	if n := <-sent; n != heard {
		t.Errorf("%d were taken, %d were heard", n, heard)
	}
	if heard < task.MaxMessages {
		wantKind(t, d.send(t, v, "late"), cofferdam.Conflict)
	}
	if more, err := d.store.LastMessages(t.Context(), plan.ID, v.ID, heard); err != nil || len(more) != 0 {
		t.Errorf("asked again: %v %v", more, err)
	}
	// A new session of the same attempt, after a lost box, hears again.
	plan.ID = cofferdam.SessionID(cofferdam.NewID("s"))
	if err := d.store.BeginSession(t.Context(), "work", 2, plan); err != nil {
		t.Fatal(err)
	}
	if err := d.send(t, v, "to the next"); err != nil && cofferdam.KindOf(err) != cofferdam.Exhausted {
		t.Error(err)
	}
}
