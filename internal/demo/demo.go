// Package demo plays the story of "make demo": a temporary server of its own, a
// real repository with a real defect, an agent that misbehaves before it works,
// and a labelled test person who merges. With a real model the agent does what
// that model wants, and the misdeeds are not asked for. It prints what was done and what was
// refused, and checks each promise by an effect it can see itself.
//
// It never touches a server, repository or state folder that was there before,
// and ends everything it started. The invariant: it succeeds only if every one
// of its checks held.
package demo

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"cofferdam"
	"cofferdam/client"
)

//go:embed shop agent.sh
var files embed.FS

// Options says how to play.
type Options struct {
	Agent    string // loop, command, claude, codex, opencode or gemini
	Model    string // Rehearsal or Real
	Programs string // folder of the built programs
	Out      io.Writer
	Progress io.Writer
	Keep     bool // leave the temporary folder
}

// story is one play.
type story struct {
	Options
	dir      string // temporary
	state    string
	upstream string // bare repository
	canary   string // a secret of the host, random
	provider string // protocol of the model; "": the agent asks none
	url      string // of the provider; "": its own. Only tests set it
	key      string // of the model; random for a rehearsal
	base     cofferdam.Commit
	person   *client.Client // the labelled test person
	task     cofferdam.Task
	change   cofferdam.Change
	export   string // file
	keyFile  string // public key
	held     []check
	stops    []func()
}

// check is one promise and whether it held.
type check struct {
	promise, seen string
	held          bool
}

// person is the name of the demo's approver; it is a test person everywhere.
const person = "demo"

// Run plays the story. The error says what could not be played or that a check
// did not hold.
func Run(ctx context.Context, o Options) error {
	return (&story{Options: o}).play(ctx)
}

func (s *story) play(ctx context.Context) error {
	defer s.end()
	if err := s.cast(); err != nil {
		return err
	}
	for _, step := range []struct {
		says string
		does func(context.Context) error
	}{
		{"making a repository with a defect", s.prepare},
		{"starting a keeper and a server of its own", s.serve},
		{"running the task", s.run},
		{"trying to land without a person", s.landTooEarly},
		{"approving as the test person, and landing", s.merge},
		{"taking the evidence away and checking it", s.verify},
	} {
		start := time.Now()
		fmt.Fprintf(s.Progress, "demo: %s\n", step.says)
		if err := step.does(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.says, err)
		}
		fmt.Fprintf(s.Progress, "demo: %s: %.1f s\n", step.says, time.Since(start).Seconds())
	}
	return s.close(ctx)
}

// note keeps one check.
func (s *story) note(held bool, promise, seen string, args ...any) {
	s.held = append(s.held, check{promise, fmt.Sprintf(seen, args...), held})
}

// close prints the table and says how many checks held.
func (s *story) close(ctx context.Context) error {
	if err := s.tell(ctx); err != nil {
		return err
	}
	held := 0
	for _, c := range s.held {
		word := "NOT held"
		if c.held {
			word = "held"
			held++
		}
		fmt.Fprintf(s.Out, "%-9s %-58s %s\n", word, c.promise, c.seen)
	}
	fmt.Fprintf(s.Out, "\ndemo: %d of %d checks held\n", held, len(s.held))
	if held != len(s.held) {
		return &cofferdam.Error{
			Op: "demo.Run", Subject: "demo", Reason: fmt.Sprintf("%d checks did not hold", len(s.held)-held),
			Hint: "the lines above say which; cofferdam doctor checks this host",
		}
	}
	return nil
}

// end stops what was started, last first, and removes the folder.
func (s *story) end() {
	if s.person != nil && !s.Keep {
		// Of an ordinary user the server alone can remove a mirror, and the keeper a
		// workspace: their files belong to other users of the same range.
		ctx, cancel := context.WithTimeout(context.Background(), readyIn)
		defer cancel()
		kept, _ := s.person.Workspaces(ctx) // leftovers, as below
		for _, w := range kept {
			_ = s.person.RemoveWorkspace(ctx, w.ID, true)
		}
		_ = s.person.RemoveRepo(ctx, "shop") // a leftover, as below
	}
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
	if s.dir != "" && !s.Keep {
		_ = os.RemoveAll(s.dir) // a leftover in the temporary folder harms nothing
	} else if s.dir != "" {
		fmt.Fprintf(s.Progress, "demo: everything is left in %s\n", s.dir)
	}
}

// prepare makes the repository and the host's secret.
func (s *story) prepare(ctx context.Context) error {
	var err error
	if s.dir, err = os.MkdirTemp("", "cofferdam-demo-"); err != nil {
		return err
	}
	s.state = filepath.Join(s.dir, "state")
	s.canary = random()
	secret := filepath.Join(s.dir, "credentials")
	if err := os.WriteFile(secret, []byte("secret token = "+s.canary+"\n"), 0o644); err != nil {
		return err
	}
	shop := filepath.Join(s.dir, "shop")
	if err := os.MkdirAll(shop, 0o755); err != nil {
		return err
	}
	list, err := files.ReadDir("shop")
	if err != nil {
		return err
	}
	for _, f := range list {
		text, err := files.ReadFile("shop/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(shop, f.Name()), text, 0o644); err != nil {
			return err
		}
	}
	s.upstream = filepath.Join(s.dir, "shop.git")
	for _, args := range [][]string{
		{"-C", shop, "init", "-q", "-b", "main"},
		{"-C", shop, "add", "-A"},
		{"-C", shop, "-c", "user.name=Shop", "-c", "user.email=shop@example.test", "commit", "-q", "-m", "a shop with a defect"},
		{"clone", "-q", "--bare", shop, s.upstream},
	} {
		if _, err := s.git(ctx, args...); err != nil {
			return err
		}
	}
	head, err := s.git(ctx, "-C", s.upstream, "rev-parse", "main")
	s.base = cofferdam.Commit(head)
	return err
}

func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// agent returns the text of the misbehaving agent.
func (s *story) agent() (string, error) {
	text, err := files.ReadFile("agent.sh")
	return "CANARY=" + filepath.Join(s.dir, "credentials") + "\n" + string(text), err
}
