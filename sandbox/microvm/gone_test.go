package microvm

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/cage"
	"cofferdam/sandbox/microvm/qemu"
	"cofferdam/sandbox/microvm/vmm"
)

// endedMachine has ended, and counts how often it was ended by its driver.
type endedMachine struct {
	vmm.Running
	p    cage.Process
	ends int
}

func (m *endedMachine) Process() *cage.Process { return &m.p }

func (m *endedMachine) End() { m.ends++ }

func newEnded() *endedMachine {
	m := &endedMachine{p: cage.Process{Ended: make(chan struct{}), Err: errors.New("signal: bus error")}}
	close(m.p.Ended)
	return m
}

// TestStepsOfABoxThatIsGone takes a box away in the middle of a step: what is left of
// the step ends with an error that says so, and a machine that it starts is ended.
func TestStepsOfABoxThatIsGone(t *testing.T) {
	for name, step := range map[string]func(*box) error{
		"wake":   func(b *box) error { return b.wake(t.Context()) },
		"line":   func(b *box) error { _, err := b.joinLine(t.Context()); return err },
		"resume": func(b *box) error { b.rest = isPaused; return b.Resume(t.Context()) },
		"load": func(b *box) error {
			m := newEnded()
			err := b.setMachine(m)
			if m.ends != 1 || b.machine() != nil {
				t.Errorf("its machine was ended %d times", m.ends)
			}
			return err
		},
	} {
		b := &box{d: &Driver{monitor: &qemu.Monitor{}}, spec: sandbox.Spec{ID: newID()}, Life: sandbox.NewLife(), gone: true}
		if err := step(b); cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEndOfAMachineIsNoted wants the log to say how a machine ended that nobody had
// ended, and nothing of one that was.
func TestEndOfAMachineIsNoted(t *testing.T) {
	for _, meant := range []bool{false, true} {
		var log bytes.Buffer
		b := &box{d: &Driver{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}, spec: sandbox.Spec{ID: newID()}, console: newConsole()}
		b.console.over = make(chan struct{})
		close(b.console.over)
		m := newEnded()
		if !meant {
			b.vm = m
		}
		noteEnd(b, m)
		if noted := strings.Contains(log.String(), string(b.spec.ID)) && strings.Contains(log.String(), "signal: bus error"); noted == meant {
			t.Errorf("meant %v: %s", meant, log.String())
		}
	}
}
