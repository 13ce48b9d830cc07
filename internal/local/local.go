package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/internal/local/network"
	"cofferdam/policy"
	"cofferdam/sandbox"
)

// Options is one run.
type Options struct {
	Argv      []string
	Workspace string // folder the command may write; "" for the current one
	Copy      bool   // give it a copy of the workspace and leave the original untouched
	Allow     []string
	Env       []string // NAME=VALUE, besides what every command gets
	Trace     string   // file that gets the trace; "" for one in the state folder
	Config    config.Config
	Getenv    func(string) string
	Environ   func() []string
	// Stdin, Stdout and Stderr become the command's own.
	Stdin, Stdout, Stderr *os.File
	Signals               <-chan os.Signal // sent on to the command
	Gateways              network.Gateways // nil: those of this system
	Look                  Look             // begun by LookAtHost when this process began; zero: the run looks
}

// Result is how a run ended.
type Result struct {
	sandbox.Result
	Session  cofferdam.SessionID
	Trace    string   // file with its trace
	Key      string   // file with the public key that checks it
	Copy     string   // the copy of the workspace; "" for none
	Original string   // what it is a copy of
	Refused  []string // hosts that policy refused while it ran, the first 16
	Lost     *Lost    // why it had no network to its end; nil: it had
}

// run is one run under way.
type run struct {
	o         Options
	id        cofferdam.SessionID
	state     state
	home      string // without links; "" for none
	workspace workspace
	rules     []policy.Rule
	trust     trust
	look      Look // zero: the box looks
	env       []string
	place     *os.Root // the folder of the trace, from before the command; nil for that of the state

	// Both are nil until open, and what could not be made stays so.
	record  *record
	network network.Way
	refused *refusals        // of network
	policy  cofferdam.Digest // that it holds to

	noNetwork *Lost // set by lost; read when the network is closed

	sealed   bool // how it ended is on record, or cannot be
	result   Result
	unsealed error
}

// Run runs one command in a box of its own. An error means that the command
// did not run, or that how it ended could not be put on record.
func Run(ctx context.Context, o Options) (Result, error) {
	r := newRun(o)
	return r.do(ctx, r.enclose)
}

func newRun(o Options) *run {
	r := &run{o: o, id: cofferdam.SessionID(cofferdam.NewID("s"))}
	if !o.Copy && !asksPreset(o.Allow) { // which takes so long that what was seen would be old
		r.look = o.Look
	}
	return r
}

// do runs the command by enclose, which opens the record before the command
// begins, and returns when it has ended.
func (r *run) do(ctx context.Context, enclose func(context.Context) (sandbox.Result, error)) (Result, error) {
	defer func() {
		if r.place != nil {
			r.place.Close()
		}
	}()
	if err := r.prepare(ctx); err != nil {
		if cut := (interrupted{}); errors.As(err, &cut) {
			return Result{Result: cut.result()}, nil
		}
		return Result{}, err
	}
	// A short run ends before it has made anything that is worth collecting.
	debug.SetGCPercent(400)
	var beside sync.WaitGroup
	beside.Go(func() { r.state.tidy(r.id) })
	if r.place == nil {
		beside.Go(func() { r.state.beginTrace(r.id) })
	}
	ended, err := enclose(ctx)
	beside.Wait()
	return r.end(ended, err)
}

// prepare reads all that was asked for, so that nothing is made for a run that
// cannot be.
func (r *run) prepare(ctx context.Context) error {
	var err error
	if r.rules, err = policy.ParseAllow(r.o.Allow, presets(ctx, r.o.Config, r.o.Allow)); err != nil {
		return err
	}
	if r.state, err = findState(r.o.Getenv); err != nil {
		return err
	}
	if r.home, err = filepath.EvalSymlinks(r.o.Getenv("HOME")); err != nil {
		r.home = ""
	}
	if r.workspace, err = findWorkspace(r.o.Workspace, r.home, r.state); err != nil {
		return err
	}
	if err := r.state.prepare(); err != nil {
		return err
	}
	if r.trust, err = r.state.trusted(ctx, r.gateways(), r.o.Getenv); err != nil {
		return err
	}
	r.env = r.environment(ctx)
	if r.o.Trace != "" {
		if r.o.Trace, err = filepath.Abs(r.o.Trace); err != nil {
			return r.state.unusable(err)
		}
		if r.place, err = os.OpenRoot(filepath.Dir(r.o.Trace)); err != nil {
			return noTrace(r.o.Trace, "its folder cannot be opened: "+plain(err))
		}
		if info, err := r.place.Lstat(filepath.Base(r.o.Trace)); err == nil && !info.Mode().IsRegular() {
			return noTrace(r.o.Trace, "it is no file")
		}
	}
	if r.o.Copy {
		return r.copy(ctx)
	}
	return nil
}

func noTrace(file, reason string) error {
	return &cofferdam.Error{Op: "local.Run", Kind: cofferdam.Invalid, Subject: "trace " + file, Reason: reason, Hint: "name another file with --trace"}
}

// open makes the record and the network of the box, and puts on record what is
// about to happen.
func (r *run) open(ctx context.Context) error {
	var err error
	if r.record, err = r.state.open(r.id); err != nil {
		return placed(r.state.live, elsewhere, err)
	}
	if err := r.goOut(ctx); err != nil {
		return err
	}
	return placed(r.state.live, elsewhere, r.record.began(r))
}

// end returns how the run ended, which it puts on record unless that is done.
func (r *run) end(ended sandbox.Result, err error) (Result, error) {
	if !r.sealed {
		r.seal(ended, err)
	}
	r.result.Result = ended
	if err == nil && r.unsealed != nil { // what the command did is done
		return r.result, &cofferdam.Error{
			Op: "local.Run", Kind: cofferdam.KindOf(r.unsealed), Reason: fmt.Sprintf("%v; the command had ended with %d", r.unsealed, ended.Exit),
			Hint: cofferdam.HintOf(r.unsealed), Err: r.unsealed,
		}
	}
	return r.result, first(err, r.unsealed)
}

// seal puts on record how the run ended, and closes the record. Nothing can
// leave the box from here on. It runs beside the end of the box.
func (r *run) seal(ended sandbox.Result, err error) {
	r.sealed = true
	r.result = Result{Session: r.id, Key: r.state.path("keys", "trace.pub")}
	if r.network != nil {
		if late := r.network.Close(); late != nil && r.noNetwork == nil && r.record.log.Size() > 0 {
			r.lost(late)
		}
		r.result.Refused, r.result.Lost = r.refused.list(), r.noNetwork
	}
	if r.o.Copy {
		r.result.Copy, r.result.Original = r.workspace.from, r.workspace.dir
	}
	if r.record == nil {
		r.result.Copy = ""
		r.unsealed = first(err, r.dropCopy())
		_ = os.Remove(r.state.path("traces", begunTrace(r.id))) // or a later run does
		return
	}
	if r.record.log.Size() == 0 { // the command never ran
		r.result.Copy = ""
		r.unsealed = first(err, r.dropCopy(), r.record.drop())
		return
	}
	err = first(err, placed(r.state.live, "free some there; what was recorded is in "+r.record.dir(), r.record.ended(ended, err)))
	var ferr error
	r.result.Trace, ferr = r.record.finish(r.o.Trace, r.place)
	r.unsealed = first(err, ferr)
}

// first returns the first error there is: a person is told one reason.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// dropCopy removes the copy that no command has seen.
func (r *run) dropCopy() error {
	if !r.o.Copy {
		return nil
	}
	return os.RemoveAll(filepath.Dir(r.workspace.from))
}

// findState returns the state folder of this user.
func findState(getenv func(string) string) (state, error) {
	dir := getenv("XDG_STATE_HOME")
	if dir == "" && getenv("HOME") != "" {
		dir = filepath.Join(getenv("HOME"), ".local", "state")
	}
	if !filepath.IsAbs(dir) {
		return state{}, &cofferdam.Error{
			Op: "local.Run", Kind: cofferdam.Invalid, Subject: "state folder", Reason: "neither XDG_STATE_HOME nor HOME is an absolute path",
			Hint: "every run is recorded: set HOME",
		}
	}
	dir = filepath.Join(dir, "cofferdam")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return state{}, state{dir: dir}.unusable(err)
	}
	// The box hides folders by their own names, not by those of links to them.
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return state{}, state{dir: dir}.unusable(err)
	}
	return newState(real, getenv("XDG_RUNTIME_DIR")), nil
}

// inherited are the variables that a command gets as the caller has them. All
// others, whatever they hold, stay outside.
var inherited = []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ"}

// environment is built, not inherited.
func (r *run) environment(ctx context.Context) []string {
	var env []string
	for _, name := range inherited {
		if v := r.o.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	for _, v := range r.o.Environ() {
		if strings.HasPrefix(v, "LC_") {
			env = append(env, v)
		}
	}
	env = append(env, r.trust.env...)
	if asksPreset(r.o.Allow) {
		env = append(env, config.Variables(ctx, config.ThisMachine())...)
	}
	return append(env, r.o.Env...)
}

// shown are folders below hidden ones of the home folder that can be read all
// the same: what lies in trust, and programs that PATH names, with what lies
// beside them, as those that are installed for one user need it.
func (r *run) shown() []string {
	var show []string
	if r.home != "" && within(r.trust.dir, r.home) {
		show = append(show, r.trust.dir)
	}
	for _, dir := range filepath.SplitList(r.o.Getenv("PATH")) {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil || !filepath.IsAbs(dir) || r.home == "" || !within(dir, r.home) {
			continue
		}
		rel, err := filepath.Rel(r.home, dir)
		if err != nil || !strings.HasPrefix(rel, ".") || rel == "." || slices.Contains(show, dir) {
			continue
		}
		// ~/.nvm/versions/node/v24/bin: its lib too. ~/.cargo/bin: beside it lie
		// the credentials.
		if filepath.Base(dir) == "bin" && strings.Count(rel, string(filepath.Separator)) > 1 {
			dir = filepath.Dir(dir)
		}
		show = append(show, dir)
	}
	return show
}
