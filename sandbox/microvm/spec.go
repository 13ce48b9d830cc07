package microvm

import "cofferdam/sandbox"

// Bounds of what a Spec may ask for. Below the lower one a machine does not start.
const (
	minMemory = 192 << 20 // the kernel with its initramfs, and pid 1
	maxCPU    = 64
)

// checkSpec refuses what cannot be had and fills in what is left open.
func (d *Driver) checkSpec(s *sandbox.Spec) error {
	err := s.Complete(sandbox.Rules{
		Driver: "microvm", Tiers: []sandbox.Tier{sandbox.MicroVM, sandbox.Emulated}, MinMemory: minMemory, MaxCPU: maxCPU, State: d.o.Root,
		Closed: []string{"/tmp", "/.cofferdam"},
	})
	s.Limits.Memory &^= 1<<20 - 1 // machines have whole MiB
	return err
}
