package microvm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/microvm/vmm"
)

// kvmPatience is how long a machine on KVM may take until pid 1 prints its
// first word: a tenth of a second, on a loaded host a few.
const kvmPatience = 15 * time.Second

// A proof that KVM runs no machine is believed for kvmDoubt: the host may have been
// too busy, or have got the module since.
const kvmDoubt = time.Hour

// kvmProof is what was seen of this host's KVM. The device alone proves
// nothing: where virtualisation is nested, it may accept no kernel.
type kvmProof struct {
	Works   bool          `json:"works"`
	Reason  string        `json:"reason,omitempty"` // why not
	Took    time.Duration `json:"took"`
	At      time.Time     `json:"at"`
	Boot    string        `json:"boot"`    // of the host: its boot id
	Kernel  string        `json:"kernel"`  // digest of kernel and initramfs
	Monitor string        `json:"monitor"` // with its version
}

// kvm proves that this host's KVM runs a machine, by booting one: once for each
// boot of the host, kernel and monitor.
func (c *checker) kvm(ctx context.Context) (string, string, error) {
	if c.d.o.User {
		return "", fixRoot, errors.New("a monitor has a user of its own, and only root can give one the device " + vmm.KVM)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.prove(ctx)
	switch {
	case err != nil:
		return "", fixKVM, err
	case !p.Works:
		return "", fixKVM, errors.New(p.Reason)
	}
	return fmt.Sprintf("a machine ran its pid 1 after %d ms", p.Took.Milliseconds()), "", nil
}

// prove returns what is known, or finds out. mu is held.
func (c *checker) prove(ctx context.Context) (kvmProof, error) {
	want := kvmProof{Boot: bootID()}
	boot, err := c.d.bootFiles()
	if err != nil {
		return want, err
	}
	want.Kernel = boot.digest
	if want.Monitor, err = c.d.monitor.Version(ctx); err != nil {
		return want, err
	}
	if err := unix.Access(vmm.KVM, unix.R_OK|unix.W_OK); err != nil {
		want.Reason = fmt.Sprintf("%s: %v", vmm.KVM, err)
		return want, nil // asked again each time: it costs nothing
	}
	file := cmp.Or(c.d.o.Proof, filepath.Join(c.d.o.Root, "kvm.json"))
	if c.proof == nil {
		var p kvmProof
		if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &p) == nil {
			c.proof = &p
		}
	}
	if p := c.proof; p != nil && p.stands(want) {
		return *p, nil
	}
	began := time.Now()
	want.At = began
	err = c.d.tryKVM(ctx, boot)
	if ctx.Err() != nil {
		return want, ctx.Err() // that proves nothing
	}
	want.Works, want.Took = err == nil, time.Since(began)
	if err != nil {
		want.Reason = err.Error()
	}
	c.proof = &want
	data, err := json.Marshal(want)
	if err != nil {
		return want, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return want, err
	}
	return want, writeWhole(file, data, 0o600)
}

// stands says whether p proves what is asked for.
func (p kvmProof) stands(want kvmProof) bool {
	fresh := p.Works || time.Since(p.At).Abs() < kvmDoubt
	return fresh && p.Boot == want.Boot && p.Kernel == want.Kernel && p.Monitor == want.Monitor
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // then each boot looks the same, and the proof may be old
	}
	return strings.TrimSpace(string(data))
}

// tryKVM starts a machine on KVM and waits for pid 1's first word.
func (d *Driver) tryKVM(ctx context.Context, boot bootFiles) error {
	dir, err := os.MkdirTemp(filepath.Join(d.o.Root, "memory"), "kvm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	user := d.o.user(proofUser) // beside those of boxes
	m := vmm.Machine{
		ID: "kvm-proof", KVM: true, UID: user, Dir: filepath.Join(dir, "view"), Kernel: boot.kernel, Initrd: boot.initrd,
		Memory: filepath.Join(dir, "memory"), Size: minMemory, CPUs: 1,
	}
	if err := os.Mkdir(m.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(m.Memory, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(m.Size), f.Chown(user, user), f.Close()); err != nil {
		return err
	}
	var ours, theirs [2]*os.File
	defer func() { closeAll(ours[:]); closeAll(theirs[:]) }()
	for i := range ours {
		if ours[i], theirs[i], err = vmm.SocketPair(); err != nil {
			return err
		}
	}
	m.Console, m.Network = theirs[0], theirs[1]
	vm, err := d.monitor.Start(ctx, m)
	if err != nil {
		return err
	}
	defer vm.End()
	said := newConsole()
	said.follow(ours[0])
	select {
	case <-said.seen:
		return nil
	case <-vm.Process().Ended:
		return fmt.Errorf("KVM accepts no machine here: %w", lastWords(ctx, said, vm, vmm.EndPatience))
	case <-time.After(kvmPatience):
		return fmt.Errorf("KVM runs no machine here: no word of its kernel's pid 1 within %s", kvmPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}
