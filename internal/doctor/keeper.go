package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/keeper"
)

// checkKeepers says which keepers run, of which build, and which of them is
// being replaced.
func checkKeepers(ctx context.Context, o Options) []sandbox.Finding {
	installed, err := keeper.BuildOf(o.Config.Programs, "")
	if err != nil {
		return nil // checkPrograms says which one is missing
	}
	slots := keeper.Slots(o.Config.Keeper, o.Config.KeeperState)
	found := make([][]sandbox.Finding, len(slots))
	done := make(chan struct{})
	for i, s := range slots {
		go func() {
			info, err := o.Host.Keeper(ctx, s.Socket)
			found[i] = keeperFinding(fmt.Sprintf("keeper-%d", i+1), installed, s, info, err)
			done <- struct{}{}
		}()
	}
	var all []sandbox.Finding
	for range slots {
		<-done
	}
	for _, f := range found {
		all = append(all, f...)
	}
	if len(all) == 0 && serves(ctx, o) {
		return one("keeper-1", sandbox.Warn, "the server starts another when a task needs it; if none comes, look into "+filepath.Join(slots[0].State, "keeper.log"), "none runs, although a server answers: boxes have ended with it, and their tasks try again")
	}
	if len(all) == 0 {
		return one("keeper-1", sandbox.OK, "", "none runs; cofferdam serve starts one, of build %s", installed)
	}
	return all
}

// keeperFinding is about one keeper; nil if there is none.
func keeperFinding(name, installed string, s keeper.Slot, info keeper.Info, err error) []sandbox.Finding {
	who := fmt.Sprintf("process %d, build %s, %d boxes", info.Process, info.Build, info.Boxes)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return one(name, sandbox.Warn, "ask as the user of the server, for example with sudo", "one may be at unix:%s, which this user may not open", s.Socket)
	case err != nil:
		return one(name, sandbox.Warn, cofferdam.HintOf(err), "%v", err)
	case info.Draining:
		return one(name, sandbox.OK, "", "%s: it is being replaced and ends with its last box", who)
	case info.Build != installed:
		return one(name, sandbox.Warn, "start the server again: it replaces this keeper and loses nothing", "%s; build %s is installed", who, installed)
	}
	return one(name, sandbox.OK, "", "%s", who)
}
