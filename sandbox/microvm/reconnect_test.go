package microvm

import (
	"context"
	"io"
	"os"
	"sync"
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/microvm/qemu"
	"cofferdam/sandbox/microvm/vmm"
)

// cutMonitor is QEMU with lines as a monitor with vsock has them: they end when a
// machine is saved, and the first one after that is reset by the guest's kernel.
type cutMonitor struct{ qemu.Monitor }

func (m *cutMonitor) Traits() vmm.Traits {
	t := m.Monitor.Traits()
	t.Reconnects = true
	return t
}

func (m *cutMonitor) Start(ctx context.Context, v vmm.Machine) (vmm.Running, error) {
	r, err := m.Monitor.Start(ctx, v)
	if err != nil {
		return nil, err
	}
	return &cutMachine{Running: r, resets: v.Incoming != nil}, nil
}

// cutMachine carries the machine's one line over whatever line there is.
type cutMachine struct {
	vmm.Running

	mu     sync.Mutex
	inner  *os.File
	now    *os.File // our end of the line that was given last
	resets bool     // the next line ends at once
}

func (c *cutMachine) Line(ctx context.Context) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		var err error
		if c.inner, err = c.Running.Line(ctx); err != nil {
			return nil, err
		}
		go c.fromGuest()
	}
	ours, raw, err := vmm.SocketPair()
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	given, err := vmm.Duplicate(raw)
	if err != nil {
		return nil, err
	}
	if c.resets {
		c.resets = false
		return given, ours.Close()
	}
	c.now = ours
	go func() { _, _ = io.Copy(c.inner, ours) }() // its end is the line's
	return given, nil
}

func (c *cutMachine) fromGuest() {
	b := make([]byte, 64<<10)
	for {
		n, err := c.inner.Read(b)
		c.mu.Lock()
		to := c.now
		c.mu.Unlock()
		if err != nil {
			if to != nil {
				to.Close()
			}
			return
		}
		if to != nil {
			_, _ = to.Write(b[:n]) // a line that was cut
		}
	}
}

func (c *cutMachine) Save(ctx context.Context, to vmm.Saved) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Close()
	c.now, c.resets = nil, true
	return c.Running.Save(ctx, to)
}

// TestLinesThatEnd pauses, suspends, copies and resumes a box whose lines to pid 1
// end each time: nothing that runs in it is lost.
func TestLinesThatEnd(t *testing.T) {
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("not run here: it starts four emulated machines; COFFERDAM_SOAK=1 runs it")
	}
	d := newDriver(t)
	d.monitor = &cutMonitor{}
	image := smallImage(t)
	b := newBox(t, d, func(s *sandbox.Spec) { s.Image = image }).(*box)
	testStandStill(t, b)
	testCopies(t, b)
}
