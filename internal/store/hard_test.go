package store

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cofferdam"
)

// Environment of this test binary when it runs as another process.
const (
	roleVariable = "COFFERDAM_STORE_TEST_ROLE"
	pathVariable = "COFFERDAM_STORE_TEST_PATH"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "write":
		writeUntilKilled(os.Getenv(pathVariable))
	case "open":
		s, err := Open(context.Background(), os.Getenv(pathVariable))
		if err == nil {
			_, err = s.DefaultScope(context.Background())
		}
		fmt.Printf("%s|%v|%s\n", cofferdam.KindOf(err), err, cofferdam.HintOf(err))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeUntilKilled makes tasks and walks each a step, and says so only after
// the store has said it is kept.
func writeUntilKilled(path string) {
	ctx := context.Background()
	s, err := Open(ctx, path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scope, err := s.DefaultScope(ctx)
	if err != nil {
		os.Exit(1)
	}
	repo, err := s.FindRepo(ctx, scope, "first")
	if err != nil {
		os.Exit(1)
	}
	p := place{s, scope, repo}
	for {
		v, _, err := s.CreateTask(ctx, p.task(""), unrecorded)
		if err == nil {
			fmt.Println("made", v.ID)
			_, err = s.ChangeTask(ctx, v.ID, func(v *cofferdam.Task) error { v.State, v.Comment = cofferdam.Preparing, "moved"; return nil })
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("moved", v.ID)
	}
}

func self(t *testing.T, role, path string) *exec.Cmd {
	t.Helper()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(me)
	cmd.Env = []string{roleVariable + "=" + role, pathVariable + "=" + path}
	return cmd
}

// TestKilledWhileWriting kills a writer with SIGKILL again and again: what it
// was told is kept must be there, and the file must be sound.
func TestKilledWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cofferdam.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	made, moved := map[cofferdam.TaskID]bool{}, map[cofferdam.TaskID]bool{}
	for round := range 8 {
		cmd := self(t, "write", path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			what, id, _ := strings.Cut(lines.Text(), " ")
			if what == "made" {
				made[cofferdam.TaskID(id)] = true
			} else {
				moved[cofferdam.TaskID(id)] = true
			}
			if n == 5+7*round { // then read on: what is in the pipe was said before
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if cmd.Wait() == nil {
			t.Fatal("the writer ended by itself")
		}
	}
	if len(moved) < 20 {
		t.Fatalf("only %d tasks were written: the test does not test", len(moved))
	}
	if s, err = Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id := range made {
		v, err := s.TaskByID(t.Context(), id)
		if err != nil {
			t.Fatalf("lost: %v", err)
		}
		if moved[id] && (v.State != cofferdam.Preparing || v.Comment != "moved") {
			t.Fatalf("%s is %s, its move was lost", id, v.State)
		}
	}
	var sound string
	if err := s.read.QueryRow(`PRAGMA integrity_check`).Scan(&sound); err != nil || sound != "ok" {
		t.Fatalf("the file is %q, %v", sound, err)
	}
}

// TestReadOnlyFolder opens as a user who may not write there; root may always.
func TestReadOnlyFolder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: runs a process as another user")
	}
	dir, err := os.MkdirTemp("/tmp", "store") // reachable for others, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cofferdam.db")
	try := func() string {
		cmd := self(t, "open", path)
		copied := filepath.Join(dir, "test")
		text, err := os.ReadFile(cmd.Path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, text, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Args = copied, []string{copied}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := try(); !strings.HasPrefix(got, "unavailable|") || !strings.Contains(got, "read-only") {
		t.Errorf("a new file in a read-only folder: %s", got)
	}
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := try(); !strings.HasPrefix(got, "unavailable|") || !strings.Contains(got, "read-only") {
		t.Errorf("an old file in a read-only folder: %s", got)
	}
}

// small mounts a file system of a few hundred kilobytes.
func small(t *testing.T, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("needs root with mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestReadOnlyDisk(t *testing.T) {
	dir := small(t, "size=4m")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), filepath.Join(dir, "cofferdam.db"))
	wantKind(t, err, cofferdam.Unavailable)
	if !strings.Contains(err.Error(), "read-only") || cofferdam.HintOf(err) == "" {
		t.Fatalf("the error says %q", err)
	}
}

// TestFullDisk fills the disk under an open store: each change is refused with
// that reason, nothing that was kept is lost, and with space it goes on.
func TestFullDisk(t *testing.T) {
	dir := small(t, "size=1m")
	s, err := Open(t.Context(), filepath.Join(dir, "cofferdam.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := fill(t, s)
	kept := p.create(t, "")
	plug := filepath.Join(dir, "plug")
	for size := 64 << 10; size > 0; size /= 4 { // to the last page
		for {
			f, err := os.OpenFile(plug, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Write(bytes.Repeat([]byte("x"), size))
			f.Close()
			if err != nil {
				break
			}
		}
	}
	big := p.task("")
	big.Request.Text = strings.Repeat("y", 60<<10)
	for range 3 { // the log of SQLite may have room for a little
		if _, _, err = p.CreateTask(t.Context(), big, unrecorded); err != nil {
			break
		}
		big.ID = cofferdam.TaskID(cofferdam.NewID("t"))
	}
	wantKind(t, err, cofferdam.Unavailable)
	if !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("the error says %q", err)
	}
	if v, err := p.TaskByID(t.Context(), kept.ID); err != nil || v.ID != kept.ID {
		t.Fatalf("kept before, now %v", err)
	}
	if _, err := p.TaskByID(t.Context(), big.ID); cofferdam.KindOf(err) != cofferdam.NotFound {
		t.Fatalf("the refused task: %v", err)
	}
	if err := os.Remove(plug); err != nil {
		t.Fatal(err)
	}
	p.create(t, "")
}

func TestOpenRefusals(t *testing.T) {
	ctx := t.Context()
	fresh := func() string {
		path := filepath.Join(t.TempDir(), "cofferdam.db")
		s, err := Open(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	edit := func(text string) string {
		path := fresh()
		s, err := connect(path, "rwc", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Exec(text); err != nil {
			t.Fatal(err)
		}
		return path
	}
	garbage := filepath.Join(t.TempDir(), "cofferdam.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path, says string
		kind             cofferdam.Kind
	}{
		{"missing folder", filepath.Join(t.TempDir(), "a", "cofferdam.db"), "does not exist", cofferdam.Unavailable},
		{"garbage", garbage, "damaged", cofferdam.Internal},
		{"a folder", t.TempDir(), "is a directory", cofferdam.Internal},
		{"newer", edit(`INSERT INTO migration VALUES ('2099-01-01-later.sql', 'x', 'now')`), "newer version", cofferdam.Unavailable},
		{"changed", edit(`UPDATE migration SET digest = 'x'`), "not the one of this version", cofferdam.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open(ctx, c.path)
			if err == nil {
				s.Close()
			}
			wantKind(t, err, c.kind)
			if !strings.Contains(err.Error(), c.says) || cofferdam.HintOf(err) == "" {
				t.Fatalf("the error says %q, want %q", err, c.says)
			}
		})
	}
	if _, err := Open(ctx, "relative.db"); err == nil {
		t.Fatal("a relative path was taken")
	}
}

// TestHeldByAnother shows that a change waits for another program's lock and
// then says that somebody is in the way.
func TestHeldByAnother(t *testing.T) {
	p := open(t)
	if _, err := p.write.ExecContext(t.Context(), `PRAGMA busy_timeout = 50`); err != nil {
		t.Fatal(err)
	}
	conn, err := raw(t, p).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	_, _, err = p.CreateTask(t.Context(), p.task(""), unrecorded)
	wantKind(t, err, cofferdam.Unavailable)
	if !strings.Contains(err.Error(), "another program") {
		t.Fatalf("the error says %q", err)
	}
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	p.create(t, "")
}
