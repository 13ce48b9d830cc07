// Command cofferdam-keeper owns the boxes of one host: it makes them, holds
// their output, exit codes and network devices, and offers them to the server
// on a unix socket. It outlives the server and ends every box when it ends.
//
// It decides nothing about what a box may do, knows no secret and speaks to
// nobody but processes of its own user. Its invariant: one keeper per state
// folder, in a mount namespace of its own, so that no mount of a box is ever
// seen by the host or left behind.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/internal/userns"
	"cofferdam/sandbox"
	"cofferdam/sandbox/gvisor"
	"cofferdam/sandbox/microvm"

	"golang.org/x/sys/unix"
)

// Where things are unless flags say otherwise.
const (
	defaultState  = "/var/lib/cofferdam/keeper"
	defaultSocket = "/run/cofferdam/keeper.sock"
	defaultPool   = 2
	// kvmProof is for all keepers of the host: what is there goes with the boot.
	kvmProof = "/run/cofferdam/kvm.json"
)

// settings are the flags.
type settings struct {
	socket, state string
	check, detach bool
	limits        string // "required", "watched" or "": required, unless an ordinary user runs it
	kernel        string // of machines; "": the one that is installed
	monitor       string // of machines; "": qemu, or for --check what the keeper had
	tier          string // the only one --check examines; "": all
	pool          int    // boxes of each kind that are made ahead
	kept          string // folder of the installation's first keeper; "": state
	inside        bool   // this process has its own mount namespace already
	user          bool   // it was started as uid 0 of an ordinary user's namespace
	ready         int    // descriptor on which a detached keeper reports; 0: none
	programs      string // folder of the programs that it starts; "": where this one is
}

const usage = `cofferdam-keeper owns the boxes of this host.

usage: cofferdam-keeper [--socket PATH] [--state FOLDER] [--limits HOW] [--pool N] [--kernel PATH] [--monitor NAME] [--kept FOLDER] [--detach]
       cofferdam-keeper --check [--tier TIER] [--state FOLDER] [--limits HOW] [--kernel PATH] [--monitor NAME]

  --socket PATH    unix socket for the server (default ` + defaultSocket + `)
  --state FOLDER   folder of this keeper alone (default ` + defaultState + `)
  --limits HOW     required: make no box whose memory, CPU and processes no control group bounds
                   (default for root); watched: go on without, watch the memory, and say so in
                   each box's status (default for an ordinary user)
  --pool N         make N boxes ahead of each kind that is asked for, 0 to 16 (default 2); each waits
                   stopped with about 15 MiB, is used once, and goes when nobody asked for 15 minutes
  --kernel PATH    kernel of tier microvm: a file, or a folder with boot/ and lib/modules/
                   (default: the folder kernel beside this program, else an installed cloud kernel)
  --monitor NAME   what runs machines of tier microvm: qemu (default), firecracker or cloud-hypervisor;
                   only qemu has tier microvm-emulated
  --kept FOLDER    state folder of the first keeper, for one that replaces it: workspaces lie there, and
                   what else outlives a keeper is taken over from those that have ended
                   (default: the state folder)
  --detach         start in the background; return when boxes can be made
  --check          examine this host, print the findings as JSON, exit 1 if a box cannot be made;
                   whether KVM runs a machine is tried once for each start of the host, and takes up to 15 s
  --tier TIER      examine for this tier alone

exit codes: 0 done, 1 failed, 2 wrong usage
example: cofferdam-keeper --check --state /var/lib/cofferdam/keeper
`

func main() {
	if err := userns.Settle(); err != nil {
		report(os.Stderr, err)
		os.Exit(1)
	}
	s, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		report(os.Stderr, err)
		os.Exit(cofferdam.Kinds()[cofferdam.KindOf(err)].Exit)
	}
}

// report prints an error in the two lines of the house.
func report(w io.Writer, err error) {
	fmt.Fprintf(w, "cofferdam-keeper: %v\nhint: %s\n", err, cofferdam.HintOf(err))
}

func parse(args []string, help io.Writer) (settings, error) {
	var s settings
	set := flag.NewFlagSet("cofferdam-keeper", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&s.socket, "socket", defaultSocket, "")
	set.StringVar(&s.state, "state", defaultState, "")
	set.BoolVar(&s.check, "check", false, "")
	set.BoolVar(&s.detach, "detach", false, "")
	set.StringVar(&s.limits, "limits", "", "")
	set.StringVar(&s.kernel, "kernel", "", "")
	set.StringVar(&s.monitor, "monitor", "", "")
	set.StringVar(&s.tier, "tier", "", "")
	set.IntVar(&s.pool, "pool", defaultPool, "")
	set.StringVar(&s.kept, "kept", "", "")
	set.BoolVar(&s.inside, "inside", false, "")
	set.BoolVar(&s.user, "user", false, "")
	set.IntVar(&s.ready, "ready", 0, "")
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(help, usage)
		return s, err
	}
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %.80q", set.Arg(0))
	}
	if err == nil && s.limits != "" && s.limits != limitsRequired && s.limits != limitsWatched {
		err = fmt.Errorf("--limits is %s or %s, not %.80q", limitsRequired, limitsWatched, s.limits)
	}
	if err == nil && s.monitor != "" && !slices.Contains(microvm.Monitors(), s.monitor) {
		err = fmt.Errorf("--monitor is %s, not %.80q", strings.Join(microvm.Monitors(), ", "), s.monitor)
	}
	if err == nil && s.tier != "" && (!s.check || !slices.Contains(sandbox.Tiers(), sandbox.Tier(s.tier))) {
		err = fmt.Errorf("--tier is for --check, and one of %q, not %.80q", sandbox.Tiers(), s.tier)
	}
	if err == nil && (s.pool < 0 || s.pool > gvisor.MaxPool) {
		err = fmt.Errorf("--pool is 0 to %d, not %d", gvisor.MaxPool, s.pool)
	}
	s.kept = cmp.Or(s.kept, s.state)
	for _, path := range []*string{&s.socket, &s.state, &s.kept, &s.kernel} {
		if err == nil && (*path != "" || path != &s.kernel) {
			*path, err = filepath.Abs(*path)
		}
	}
	if err != nil {
		return s, &cofferdam.Error{
			Op: "keeper.parse", Kind: cofferdam.Invalid, Subject: "reading flags", Reason: err.Error(),
			Hint: "see cofferdam-keeper --help", Err: err,
		}
	}
	return s, nil
}

// How the limits of boxes are held.
const (
	limitsRequired = "required"
	limitsWatched  = "watched"
)

func (s settings) run(ctx context.Context) error {
	switch {
	case os.Geteuid() != 0:
		return s.asUser(ctx)
	case s.detach:
		return s.background(ctx)
	case !s.inside:
		return s.enter()
	case s.check:
		return s.examine(ctx)
	}
	return s.keep(ctx)
}

// args are the flags that say the same as s, for this program started again.
func (s settings) args(more ...string) []string {
	return append([]string{
		"--socket", s.socket, "--state", s.state, "--limits", s.limits, "--kernel", s.kernel, "--monitor", s.monitor, "--kept", s.kept, "--pool", strconv.Itoa(s.pool),
		"--tier", s.tier,
	}, more...)
}

// inUser says whether this is uid 0 of an ordinary user's namespace: of its own,
// or of the server that has started it.
func (s settings) inUser() bool { return s.user || userns.Inside() }

// driver says where the driver finds its programs: beside this one.
func (s settings) driver() (gvisor.Options, error) {
	dir := s.programs
	if dir == "" {
		var err error
		if dir, err = programFolder(); err != nil {
			return gvisor.Options{}, fmt.Errorf("finding own program: %w", err)
		}
	}
	return gvisor.Options{
		Root: s.state, Workspaces: filepath.Join(s.kept, "workspaces"), Runsc: filepath.Join(dir, "cofferdam-runsc"), Init: filepath.Join(dir, "cofferdam-init"),
		Watched: s.limits == limitsWatched || s.limits == "" && s.inUser(), User: s.inUser(), Pool: s.pool,
	}, nil
}
