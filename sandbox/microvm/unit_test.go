package microvm

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
)

// bzImage wraps a payload as a kernel's build does.
func bzImage(payload []byte) []byte {
	b := make([]byte, 1024)
	b[0x1f1] = 1
	copy(b[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(b[0x248:], 0)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(payload)+4))
	return append(append(b, payload...), 0, 0, 0, 0)
}

func TestKernelIsUnpacked(t *testing.T) {
	// Two literals, then four bytes copied from two back, then the rest: an
	// overlapping match, as compressors make of repeated text.
	block := []byte{0x60 | 2, 0x7f, 'E', 'L', 'F', 'a', 'b', 2, 0, 0x10, 'z'}
	packed := append([]byte{0x02, 0x21, 0x4c, 0x18, byte(len(block)), 0, 0, 0}, block...)
	got, err := unpacked(bzImage(packed))
	if err != nil || string(got) != elf.ELFMAG+"abababab"+"z" {
		t.Errorf("%q, %v", got, err)
	}
	plain := []byte(elf.ELFMAG + "already")
	if got, err := unpacked(plain); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("an ELF file: %q, %v", got, err)
	}
	unknown := bzImage([]byte("packed otherwise"))
	if got, err := unpacked(unknown); err != nil || !bytes.Equal(got, unknown) {
		t.Errorf("another packing: %v", err)
	}
	broken := map[string][]byte{
		"nothing": nil, "text": []byte("not a kernel"), "short": bzImage(packed)[:600],
		"no ELF inside": bzImage([]byte{0x02, 0x21, 0x4c, 0x18, 2, 0, 0, 0, 0x10, 'x'}),
	}
	for i := range packed[4:] { // every prefix, and every byte wrong
		broken["cut"] = bzImage(packed[:4+i])
		wrong := slices.Clone(packed)
		wrong[4+i] ^= 0xff
		_, _ = unpacked(bzImage(wrong)) // must not panic or run away
		if _, err := unpacked(broken["cut"]); err == nil {
			t.Errorf("cut after %d bytes: no error", i)
		}
	}
	for name, b := range broken {
		if _, err := unpacked(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzUnpacked(f *testing.F) {
	f.Add(bzImage([]byte{0x02, 0x21, 0x4c, 0x18, 2, 0, 0, 0, 0x10, 'x'}))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = unpacked(b) })
}

func TestMachineDisk(t *testing.T) {
	m := guest.Machine{Hostname: "box", Files: []sandbox.File{{Path: "/etc/a", Data: []byte("\xff\x00")}}, MTU: 9}
	b, err := guest.AppendMachine(nil, m)
	if err != nil || len(b)%512 != 0 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	got, err := guest.ReadMachine(bytes.NewReader(b))
	if err != nil || got.Hostname != "box" || string(got.Files[0].Data) != "\xff\x00" {
		t.Errorf("%+v, %v", got, err)
	}
	long := slices.Clone(b)
	long[8] = 0xff
	for name, b := range map[string][]byte{"empty": nil, "zeros": make([]byte, 512), "cut": b[:40], "length": long} {
		if _, err := guest.ReadMachine(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// brokenMonitor starts nothing.
type brokenMonitor struct{ starts int }

func (*brokenMonitor) Version(context.Context) (string, error) { return "QEMU 0.0", nil }

func (*brokenMonitor) Traits() vmm.Traits { return vmm.Traits{Name: "broken", SharesMemory: true} }

func (m *brokenMonitor) Start(context.Context, vmm.Machine) (vmm.Running, error) {
	m.starts++
	return nil, errors.New("KVM accepts no kernel")
}

// TestUserIsToldWhatIsRoots: an ordinary user hears that a machine on hardware is root's
// to have also where something else is missing, which mending would not help.
func TestUserIsToldWhatIsRoots(t *testing.T) {
	d := newDriver(t)
	d.o.User, d.o.Kernel = true, filepath.Join(t.TempDir(), "vmlinuz")
	list, err := d.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range [][]sandbox.Finding{list, d.checker.tierLacks(t.Context(), sandbox.MicroVM)} {
		i := slices.IndexFunc(of, func(f sandbox.Finding) bool { return f.Name == "microvm-kvm" })
		if i < 0 || of[i].Level == sandbox.OK || !strings.Contains(of[i].Detail, "only root") || !strings.Contains(of[i].Fix, "as root") {
			t.Errorf("%+v", of)
		}
		if !slices.ContainsFunc(of, func(f sandbox.Finding) bool { return f.Name == "microvm-kernel" && f.Level == sandbox.Fail }) {
			t.Errorf("control: nothing else is missing: %+v", of)
		}
	}
}

// TestKVMIsProved wants a proof before tier microvm is offered, and asks the
// host again when it was started anew.
func TestKVMIsProved(t *testing.T) {
	d := newDriver(t)
	ctx := context.Background()
	_, _, kvmErr := d.checker.kvm(ctx)
	t.Logf("KVM of this host: %v", kvmErr)
	offers, err := d.Offers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	usable := d.checker.tierLacks(ctx, sandbox.MicroVM) == nil
	if kvmErr != nil && usable || usable != slices.ContainsFunc(offers, func(o sandbox.Offer) bool { return o.Tier == sandbox.MicroVM }) {
		t.Errorf("offers %v, KVM %v", offers, kvmErr)
	}
	if usable {
		t.Skip("not run here: this host has KVM and is hardened")
	}
	_, err = d.Create(ctx, sandbox.Spec{ID: newID(), Tier: sandbox.MicroVM, Image: "host"})
	if cofferdam.KindOf(err) != cofferdam.Unavailable || cofferdam.HintOf(err) == "" || !strings.Contains(err.Error(), "tier microvm") {
		t.Errorf("tier microvm without KVM: %v", err)
	}

	if unix.Access(vmm.KVM, unix.R_OK|unix.W_OK) != nil {
		return // nothing is started then, and nothing kept
	}
	m := &brokenMonitor{}
	d.monitor, d.checker.proof, d.o.Proof = m, nil, filepath.Join(d.o.Root, "kvm.json")
	for range 2 { // the second time by what was found the first
		if _, _, err := d.checker.kvm(ctx); err == nil {
			t.Error("a monitor that starts nothing proves KVM")
		}
	}
	if m.starts != 1 {
		t.Errorf("%d machines were started to find the same out twice", m.starts)
	}
	d.checker.proof.At = time.Now().Add(-2 * kvmDoubt)
	if _, _, err := d.checker.kvm(ctx); err == nil || m.starts != 2 {
		t.Errorf("what was found long ago is not looked at again: %d starts, %v", m.starts, err)
	}
	for _, proof := range []string{`{"works":true}`, `{"works":true,"boot":"another"}`, `not JSON`, ``} {
		if err := os.WriteFile(d.o.Proof, []byte(proof), 0o600); err != nil {
			t.Fatal(err)
		}
		d.checker.proof = nil
		if _, _, err := d.checker.kvm(ctx); err == nil {
			t.Errorf("the proof %q of another boot is believed", proof)
		}
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	d := newDriver(t)
	good := sandbox.Spec{ID: newID(), Tier: sandbox.Emulated, Image: sandbox.HostImage}
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		kind   cofferdam.Kind
	}{
		"host view":            {func(s *sandbox.Spec) { s.Image = sandbox.HostView }, cofferdam.Invalid},
		"state as image":       {func(s *sandbox.Spec) { s.Image = d.o.Root }, cofferdam.Invalid},
		"little memory":        {func(s *sandbox.Spec) { s.Limits.Memory = minMemory - 1 }, cofferdam.Invalid},
		"much disk":            {func(s *sandbox.Spec) { s.Limits.Disk = 1<<44 + 1 }, cofferdam.Invalid},
		"temp as memory":       {func(s *sandbox.Spec) { s.Limits.Temp = 3 << 30 }, cofferdam.Invalid},
		"hostname":             {func(s *sandbox.Spec) { s.Hostname = "a b" }, cofferdam.Invalid},
		"snapshot with a path": {func(s *sandbox.Spec) { s.Snapshot = "../../x" }, cofferdam.Invalid},
		"snapshot that is none": {func(s *sandbox.Spec) {
			s.Snapshot = sandbox.SnapshotID("s-" + strings.Repeat("f", 32))
			s.Image = smallImage(t)
		}, cofferdam.NotFound},
		"file over pid 1's": {func(s *sandbox.Spec) { s.Files = []sandbox.File{{Path: "/.cofferdam/identity/hostname"}} }, cofferdam.Invalid},
		"many files":        {func(s *sandbox.Spec) { s.Files = make([]sandbox.File, sandbox.MaxFiles+1) }, cofferdam.Invalid},
		"gvisor":            {func(s *sandbox.Spec) { s.Tier = sandbox.GVisor }, cofferdam.Unavailable},
	} {
		spec := good
		c.change(&spec)
		if _, err := d.Create(context.Background(), spec); cofferdam.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := d.List(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("boxes that were refused: %v, %v", list, err)
	}
}

// TestMetadataIsDropped wants no frame of a machine's to ask for 169.254.0.0/16.
func TestMetadataIsDropped(t *testing.T) {
	frame := func(kind uint16, at int, address ...byte) []byte {
		f := make([]byte, 60)
		binary.BigEndian.PutUint16(f[12:], kind)
		copy(f[at:], address)
		return f
	}
	for name, c := range map[string]struct {
		frame []byte
		drop  bool
	}{
		"to the metadata service": {frame(0x0800, 30, 169, 254, 169, 254), true}, "asking who has it": {frame(0x0806, 38, 169, 254, 169, 254), true},
		"another one": {frame(0x0800, 30, 169, 254, 0, 1), true}, "in a VLAN": {frame(0x8100, 34, 169, 254, 169, 254), true},
		"short": {make([]byte, 13), true}, "cut": {frame(0x0800, 30)[:33], true}, "nothing": {nil, true},
		"to the gateway": {frame(0x0800, 30, 10, 99, 0, 1), false}, "asking for it": {frame(0x0806, 38, 10, 99, 0, 1), false},
		"from there": {frame(0x0800, 26, 169, 254, 169, 254, 10, 99, 0, 1), false}, "IPv6": {frame(0x86dd, 30, 169, 254), false},
	} {
		if metadata(c.frame) != c.drop {
			t.Errorf("%s: dropped %v", name, !c.drop)
		}
	}
}

// TestRestIsProved: a box goes on from what it left on disk, memory, state, disk and
// workspace, and from nothing else.
func TestRestIsProved(t *testing.T) {
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &box{folder: folder{base: t.TempDir(), id: "b-1"}}
	memory := filepath.Join(b.path(suspendedDir), memoryCopy)
	if err := os.MkdirAll(b.path(suspendedDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if cofferdam.KindOf(untouched(b)) != cofferdam.Tampered {
		t.Error("control: a box without a disk may go on")
	}
	for _, path := range []string{memory, filepath.Join(b.path(suspendedDir), stateFile), b.path("machine.img"), b.workDisk()} {
		write(path, "as it was")
	}
	changed := func(path string) unix.Timespec {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ctim
	}
	rested := func() {
		var err error
		if b.resting, err = touched(b); err != nil {
			t.Fatal(err)
		}
		clock := filepath.Join(t.TempDir(), "clock") // of some kernels it stands for milliseconds
		write(clock, "x")
		for first := changed(clock); changed(clock) == first; {
			write(clock, "x")
		}
	}
	rested()
	for _, path := range []string{memory, filepath.Join(b.path(suspendedDir), stateFile), b.path("machine.img"), b.workDisk()} {
		if _, err := os.ReadFile(path); err != nil || untouched(b) != nil {
			t.Errorf("%s was read: %v, %v", path, err, untouched(b))
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func() error{
			"a byte":       func() error { write(path, "as it wAs"); return os.Chtimes(path, info.ModTime(), info.ModTime()) },
			"another file": func() error { write(path+".new", "as it was"); return os.Rename(path+".new", path) },
			"none":         func() error { return os.Remove(path) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if err := untouched(b); cofferdam.KindOf(err) != cofferdam.Tampered || cofferdam.HintOf(err) == "" {
				t.Errorf("%s, %s: %v", path, name, err)
			}
			write(path, "as it was")
			rested()
		}
	}
}
