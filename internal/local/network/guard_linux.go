package network

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"cofferdam"
)

// The program of a network reads what strangers send, and may be taken over by it. What
// it says is held to what gateways say, and that it stands still is noticed.

// What gateways put on record, and under which names.
var (
	theirKinds   = []string{cofferdam.EventDNS, cofferdam.EventConnect, cofferdam.EventRequest, cofferdam.EventDrop}
	theirSources = []string{"wire", "egress", "gateway"}
)

// admit refuses an event that gateways of this run do not put on record: who has taken
// them over must not tell of commands, of people or of other sessions.
func (s Setup) admit(e cofferdam.Event) error {
	switch {
	case !slices.Contains(theirKinds, e.Kind) || !slices.Contains(theirSources, e.Source):
		return fmt.Errorf("it asked for %.40q of %.40q on record, which is not its own", e.Kind, e.Source)
	case e.Scope != s.Scope || e.Session != s.Session || e.Task != "" || e.Actor != Actor:
		return fmt.Errorf("it asked for %.40q on record in another name", e.Kind)
	}
	return nil
}

// frozenTick is how often a program is looked at, which is lost if it stands still at
// two looks in a row.
const frozenTick = 1 * time.Second

// watch looks whether somebody has stopped a process, and then calls kill. What it
// returns ends that, and says whether it did.
func watch(pid int, kill func()) (end func() (frozen bool)) {
	quit, found := make(chan struct{}), make(chan bool, 1)
	go func() {
		t := time.NewTicker(frozenTick)
		defer t.Stop()
		for looks := 0; looks < 2; {
			select {
			case <-quit:
				found <- false
				return
			case <-t.C:
			}
			if looks++; !isStopped(pid) {
				looks = 0
			}
		}
		kill()
		found <- true
	}()
	return func() bool { close(quit); return <-found }
}

// isStopped says whether a process stands still until it is told to go on; false for
// one that is not there.
func isStopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	end := bytes.LastIndexByte(stat, ')') // of its name, which may hold anything
	return err == nil && end >= 0 && len(stat) > end+2 && stat[end+2] == 'T'
}
