package local

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/proof"
	"cofferdam/sandbox"
	"cofferdam/trace"
)

// keptTraces is how many exports of earlier runs stay in the state folder.
const keptTraces = 200

// settled is how old the record of a run has to be before another run may take
// it for one that was killed: a new one is not locked from its first moment.
const settled = 60 * time.Second

// scope is to whom the runs of one user belong: there is one project.
var scope = cofferdam.Scope{Organization: "o-local", Project: "p-local"}

// record is the trace of one run while it goes on.
type record struct {
	state state
	id    cofferdam.SessionID
	key   proof.Signer
	store *trace.Store
	log   *trace.Log
	since time.Time
}

// state is the folder in which everything of one user's runs is kept.
type state struct {
	dir  string
	live string // folder of the records of runs that go on
}

func (s state) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// logins is where a system keeps folders in memory for as long as a user is logged
// in. A run may go on for longer, and its record with it.
const logins = "/run/user"

// newState finds the folder for the records of runs that go on: in memory if
// this user has such a place that stays, since they are as short-lived as their
// process and to make a file on a disk takes a part of a short run.
func newState(dir, runtime string) state {
	s := state{dir: dir, live: filepath.Join(dir, "live")}
	if within(runtime, logins) {
		runtime = ""
	}
	if runtime == "" && os.Geteuid() == 0 {
		runtime = "/run"
	}
	var st unix.Stat_t
	if !filepath.IsAbs(runtime) || unix.Stat(runtime, &st) != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return s
	}
	s.live = liveIn(runtime, dir)
	return s
}

// keyName is what a new key is called: as a server calls its own, for an ordinary
// user's server signs with this one if the run came first.
const keyName = "cofferdam"

// key opens the key that signs traces. It is made under a lock: two first runs
// at the same time must not end with the key of one and the traces of another.
func (s state) key() (proof.Signer, error) {
	path := s.path("keys", "trace")
	if _, err := os.Lstat(path); err == nil {
		return trace.OpenKey(path, keyName)
	}
	lock, err := os.OpenFile(s.path("keys", "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return proof.Signer{}, s.unusable(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return proof.Signer{}, s.unusable(err)
	}
	return trace.OpenKey(path, keyName)
}

// prepare makes the folders.
func (s state) prepare() error {
	for _, dir := range []string{s.path("keys"), s.path("traces"), s.live} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return s.unusable(err)
		}
	}
	if err := s.sign(); err != nil {
		return s.unusable(err)
	}
	return nil
}

// unusable refuses a run that could not be recorded.
func (s state) unusable(err error) error {
	place := s.dir
	if within := (*fs.PathError)(nil); errors.As(err, &within) {
		place = within.Path // may be that of the live records
	}
	if full := placed(place, elsewhere, err); full != err {
		return full
	}
	return &cofferdam.Error{
		Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "state folder " + s.dir, Reason: plain(err),
		Hint: "every run is recorded: make the folder writable, or name another with XDG_STATE_HOME", Err: err,
	}
}

// open begins the record of a run.
func (s state) open(id cofferdam.SessionID) (*record, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	r := &record{state: s, id: id, since: time.Now()}
	var err error
	if r.key, err = s.key(); err != nil {
		return nil, err
	}
	return r, r.open()
}

// open opens the logs of r.
func (r *record) open() error {
	var err error
	if r.store, err = trace.OpenBrief(r.dir(), r.key, nil); err != nil {
		return err
	}
	if r.log, err = r.store.Session(scope, r.id); err != nil {
		return errors.Join(err, r.store.Close())
	}
	return nil
}

// dir is where the record lies while the run goes on.
func (r *record) dir() string { return filepath.Join(r.state.live, string(r.id)) }

// put records what the platform did.
func (r *record) put(e cofferdam.Event) error {
	e.Source, e.Actor = "local", cofferdam.Principal{Kind: cofferdam.Platform, Name: "run"}
	_, err := r.log.Record(context.Background(), e)
	return err
}

// maxCommand bounds a command line on record, in bytes.
const maxCommand = 4096

// began records what is about to run, and under which policy.
func (r *record) began(run *run) error {
	var allow []string
	for _, rule := range run.rules {
		allow = append(allow, rule.String())
	}
	command := strings.Join(run.o.Argv, " ")
	if len(command) > maxCommand {
		command = command[:maxCommand] + "…"
	}
	err := r.put(cofferdam.Event{Kind: cofferdam.EventSessionOpen, Resource: "run", Fields: map[string]string{
		"tier": string(sandbox.Process), "walls": walls, "image": sandbox.HostView, "workspace": run.workspace.dir, "copy": strconv.FormatBool(run.o.Copy),
		"allow": strings.Join(allow, " "), "policy": string(run.policy),
	}})
	if err != nil {
		return err
	}
	return r.put(cofferdam.Event{Kind: cofferdam.EventExecStart, Resource: "command", Fields: map[string]string{"text": command, "folder": run.workspace.inner}})
}

// ended records how the command ended, in words where it did not end by itself.
// failed, which may be nil, is why the box did not end as it should.
func (r *record) ended(res sandbox.Result, failed error) error {
	if failed != nil {
		return r.put(cofferdam.Event{Kind: cofferdam.EventExecEnd, Resource: "command", Outcome: "failed", Reason: plain(failed)})
	}
	fields := map[string]string{"exit": strconv.Itoa(res.Exit), "seconds": strconv.FormatFloat(cmp.Or(res.Ended, time.Now()).Sub(r.since).Seconds(), 'f', 3, 64)}
	if res.Signal != 0 {
		fields["signal"] = strconv.Itoa(res.Signal)
	}
	for _, x := range res.Exhausted {
		fields["exhausted"] = strings.TrimPrefix(fields["exhausted"]+", "+string(x), ", ")
	}
	return r.put(cofferdam.Event{Kind: cofferdam.EventExecEnd, Resource: "command", Reason: res.Reason, Fields: fields})
}

// drop forgets a run that did not happen.
func (r *record) drop() error {
	return errors.Join(r.store.Close(), os.RemoveAll(r.dir()), os.RemoveAll(r.state.path("traces", begunTrace(r.id))))
}

// finish seals the record and exports it into file, which is to be in the folder
// place, or with nil among the traces of the state folder, and returns where it is.
func (r *record) finish(file string, place *os.Root) (string, error) {
	ctx := context.Background()
	_, err := r.log.Seal(ctx)
	temp := ".cofferdam-" + cofferdam.NewID("new")
	if place == nil {
		temp = begunTrace(r.id)
		file = r.state.path("traces", r.since.UTC().Format("20060102T150405.000Z")+"-"+string(r.id)+".jsonl")
		var opened error
		if place, opened = os.OpenRoot(filepath.Dir(file)); opened == nil {
			defer place.Close()
		}
		err = errors.Join(err, opened)
	}
	if err == nil {
		err = appear(place, temp, filepath.Base(file), func(w io.Writer) error { return r.store.Export(ctx, w, []cofferdam.SessionID{r.id}, "", nil) })
	}
	if err = errors.Join(err, r.store.Close()); err != nil {
		hint := "free some there, or name another file with --trace; what was recorded is in " + r.dir()
		return file, placed(filepath.Dir(file), hint, &cofferdam.Error{
			Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "trace of this run " + file, Reason: plain(err),
			Hint: "write it elsewhere with --trace; what was recorded is in " + r.dir(), Err: err,
		})
	}
	return file, os.RemoveAll(r.dir())
}

// appear writes a file that is there only when it is whole, and temp before. The
// folder is held open: by its name, whoever may write above it could have put
// another there.
func appear(place *os.Root, temp, name string, write func(io.Writer) error) error {
	f, err := place.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, place.Remove(temp))
	}
	return place.Rename(temp, name)
}

// begunTrace is the name of a trace of the state folder until it is whole.
func begunTrace(id cofferdam.SessionID) string { return "." + string(id) }

// beginTrace makes the file of a trace that is still to be written: a disk takes
// longer to make a file than to write it, and now nobody waits for it. Without it
// finish makes one.
func (s state) beginTrace(id cofferdam.SessionID) {
	if f, err := os.OpenFile(s.path("traces", begunTrace(id)), os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
		f.Close()
	}
}

// dropTraces removes what was begun by runs that never came to their record.
func (s state) dropTraces() {
	entries, err := os.ReadDir(s.path("traces"))
	if err != nil {
		return
	}
	for _, e := range entries {
		id, begun := strings.CutPrefix(e.Name(), begunTrace(""))
		if !begun {
			break // these names come first
		}
		_, live := os.Lstat(filepath.Join(s.live, id))
		if info, err := e.Info(); err == nil && errors.Is(live, fs.ErrNotExist) && info.Size() == 0 && time.Since(info.ModTime()) > settled {
			_ = os.Remove(s.path("traces", e.Name())) // the next run tries again
		}
	}
}

// tidy ends the records of runs whose process was killed, and removes the
// oldest traces. What it cannot do is left to the next run.
func (s state) tidy(own cofferdam.SessionID) {
	s.finishKilled(own)
	s.dropTraces()
	s.tidyOthers()
	traces := list(s.path("traces")) // by name, which begins with the time
	for _, e := range traces[:max(0, len(traces)-keptTraces)] {
		_ = os.Remove(s.path("traces", e.Name())) // the next run tries again
	}
}

// finishKilled ends the records of runs whose process was killed.
func (s state) finishKilled(own cofferdam.SessionID) {
	for _, e := range list(s.live) {
		info, err := e.Info()
		if e.Name() == string(own) || err != nil || time.Since(info.ModTime()) < settled {
			continue
		}
		s.adopt(cofferdam.SessionID(e.Name()), info.ModTime())
	}
}

// adopt finishes a record that nobody has open any more.
func (s state) adopt(id cofferdam.SessionID, began time.Time) {
	r := &record{state: s, id: id, since: began}
	var err error
	if r.key, err = s.key(); err != nil {
		return
	}
	if r.open() != nil {
		return // its run goes on
	}
	if r.log.Size() > 0 {
		err = r.put(cofferdam.Event{Kind: cofferdam.EventSessionState, Resource: "ended", Outcome: "cut", Reason: "the process of this run was killed, or its record found no space"})
	}
	if err == nil || cofferdam.KindOf(err) == cofferdam.Conflict { // sealed already
		_, _ = r.finish("", nil) // what is left is adopted again
	}
}

// list returns the entries of a folder in the order of their names.
func list(dir string) []fs.DirEntry {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
}

// plain returns the reason of an error of the file system without its path.
func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
