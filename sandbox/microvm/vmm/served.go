package vmm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"cofferdam/sandbox/cage"
)

// EndPatience is how long a monitor may take to be gone once its machine has ended:
// its sockets close first.
const EndPatience = 2 * time.Second

// StartPatience is how long a monitor with an API may take to start a machine. It
// is longer than one call may take, so that the call is named.
const StartPatience = 45 * time.Second

// Where a monitor with an API makes its sockets, in its root.
const (
	RunDir      = "/run"
	APISocket   = RunDir + "/api.socket"
	VsockSocket = RunDir + "/vsock.socket"
)

// GuestCID is a machine's name on its own vsock: 0 to 2 have a meaning.
const GuestCID = 3

// SaysVersion is what a program answers that is asked for its version.
func SaysVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, StartPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	return string(out), nil
}

// Served is the half of a Running whose monitor has an API over HTTP, and runs
// machines on KVM alone. Its fields are set while the machine starts.
type Served struct {
	Program *cage.Process // the one whose end is the machine's end
	PID     int           // of the monitor itself
	UID     int
	API     *API
	Network *Network
}

// Begin has start do what starts r, and ends what was made by then if that fails.
func Begin(ctx context.Context, m Machine, r Running, start func(context.Context) error) (Running, error) {
	if !m.KVM {
		return nil, errors.New("the monitor emulates no processor")
	}
	ctx, cancel := context.WithTimeout(ctx, StartPatience)
	defer cancel()
	err := start(ctx)
	if err == nil {
		return r, nil
	}
	words := ""
	if p := r.Process(); p != nil {
		words = p.Words()
	}
	r.End()
	return nil, errors.Join(err, fmt.Errorf("it printed: %.500s", words))
}

// Serve says where the monitor's API is.
func (s *Served) Serve(monitor, prefix string) {
	s.API = NewAPI(monitor, prefix, func(ctx context.Context) (*os.File, error) { return s.Dial(ctx, APISocket) }, s.Program.KillFor)
}

// Root is the monitor's, as it is now.
func (s *Served) Root() string { return fmt.Sprintf("/proc/%d/root", s.PID) }

// Dial connects to a socket of the monitor's.
func (s *Served) Dial(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := s.Program.While(ctx)
	defer cancel()
	return Dial(ctx, s.Root(), path, s.UID)
}

// Confined proves that each thread of the monitor is where it should be, once it
// says at a path of its API that its machine is in a state.
func (s *Served) Confined(ctx context.Context, path, state string) error {
	return errors.Join(s.API.StateIs(ctx, path, state), Confined(s.PID, s.UID))
}

// Process implements Running.
func (s *Served) Process() *cage.Process { return s.Program }

// Line implements Running.
func (s *Served) Line(ctx context.Context) (*os.File, error) {
	ctx, cancel := s.Program.While(ctx)
	defer cancel()
	return DialGuest(ctx, s.Root(), VsockSocket, s.UID)
}

// End implements Running.
func (s *Served) End() {
	if s.Program != nil {
		s.Program.Kill()
	}
	if s.Network != nil {
		s.Network.Close()
	}
}
