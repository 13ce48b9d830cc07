package task_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/task"
)

// TestTasksOfAnHour: a project makes so many within an hour, also when all ask at
// once and also after a restart; another project is not held up by it, a repeated
// request makes nothing new, and the refusal says when there is room again.
func TestTasksOfAnHour(t *testing.T) {
	d := open(t)
	now := time.Now()
	var mu sync.Mutex
	o := task.Options{Store: d.store, Record: d.rec, Hourly: 3, Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}}
	d.Service = task.New(o)
	ask := func(key string) error {
		r := request()
		r.Key = key
		_, err := d.Create(t.Context(), task.Order{Scope: d.scope, By: ada, Request: r, Repo: d.repo})
		return err
	}
	all := make(chan error, 8)
	for i := range cap(all) {
		go func() { all <- ask(fmt.Sprint("together-", i)) }()
	}
	made := 0
	for range cap(all) {
		err := <-all
		if err == nil {
			made++
			continue
		}
		wantKind(t, err, cofferdam.Exhausted)
	}
	if made != 3 {
		t.Fatalf("%d tasks were made, want 3", made)
	}
	d.Service = task.New(o) // another process
	mu.Lock()
	now = now.Add(20 * time.Minute)
	mu.Unlock()
	var e *cofferdam.Error
	if err := ask("late"); !errors.As(err, &e) || e.Kind != cofferdam.Exhausted || e.After < 39*time.Minute || e.After > 40*time.Minute || e.Hint == "" {
		t.Errorf("a fourth: %+v", e)
	}
	again := 0
	for i := range cap(all) {
		if ask(fmt.Sprint("together-", i)) == nil {
			again++
		}
	}
	if again != 3 {
		t.Errorf("%d of the 3 requests that made a task were answered again", again)
	}
	other := cofferdam.Scope{Organization: d.scope.Organization, Project: "p-other"}
	if err := d.store.AddProject(t.Context(), cofferdam.Project{Scope: other, Name: "other", Created: now}); err != nil {
		t.Fatal(err)
	}
	repo := cofferdam.Repo{ID: cofferdam.RepoID(cofferdam.NewID("r")), Scope: other, Name: "first", Upstream: "/srv/first.git", Base: "refs/heads/main", Created: now}
	if err := d.store.AddRepo(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), task.Order{Scope: other, By: ada, Request: request(), Repo: repo}); err != nil {
		t.Errorf("another project: %v", err)
	}
	mu.Lock()
	now = now.Add(41 * time.Minute)
	mu.Unlock()
	if err := ask("late"); err != nil {
		t.Errorf("after the hour: %v", err)
	}
}
