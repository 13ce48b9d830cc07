package flow

import (
	"strings"
	"testing"
	"time"

	"cofferdam"
)

// TestQuestionMakesItWait: a task whose agent asks is waiting, with its question; a
// message makes it run, and it goes on.
func TestQuestionMakesItWait(t *testing.T) {
	ctx := patience(t, 2*time.Minute)
	s := open(t, ctx, nil)
	v, err := s.create(ctx, "asks")
	if err != nil {
		t.Fatal(err)
	}
	<-s.actors.waiting
	v, err = s.tasks.ByID(ctx, v.ID)
	if err != nil || v.State != cofferdam.Waiting || !strings.Contains(v.Comment, "which way?") {
		t.Fatalf("%s %q %v", v.State, v.Comment, err)
	}
	if _, err := s.tasks.Send(ctx, s.scope, ada, v.Short(), "that way"); err != nil {
		t.Fatal(err)
	}
	if v, err = s.tasks.ByID(ctx, v.ID); err != nil || v.State != cofferdam.Running || v.Comment != "" {
		t.Fatalf("after the answer: %s %q %v", v.State, v.Comment, err)
	}
	close(s.actors.answer)
	if v, err = s.until(ctx, v, cofferdam.InReview); err != nil || v.State != cofferdam.InReview {
		t.Fatalf("%s %q %v", v.State, v.Comment, err)
	}
}
