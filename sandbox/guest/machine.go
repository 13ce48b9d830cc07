package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"cofferdam/sandbox"
)

// Machine is what pid 1 of a virtual machine reads before it does anything
// else, from a small disk: how to build what the box of another tier is given
// by its driver. It holds nothing secret: commands cannot read the disk, but a
// kernel of their own might.
type Machine struct {
	Time     time.Time      `json:"time"` // the host's; a machine has no clock of its own
	Seed     []byte         `json:"seed"` // of its entropy
	Hostname string         `json:"hostname"`
	Temp     int64          `json:"temp"`          // bytes of /tmp, and of the home folder
	Shared   int64          `json:"shared"`        // bytes of /dev/shm
	Env      string         `json:"env,omitempty"` // "ro" or "rw": there is a disk for /env
	Files    []sandbox.File `json:"files,omitempty"`
	MTU      int            `json:"mtu"`
}

// Names of a machine's disks (their serial numbers) and of its serial port.
const (
	DiskMachine = "machine" // a Machine, as AppendMachine writes it
	DiskRoot    = "root"    // erofs, read-only
	DiskWork    = "work"    // ext4
	DiskEnv     = "env"     // ext4
	PortName    = "cofferdam.0"
)

// Words of the kernel's command line for a machine whose monitor has no serial
// port of ours, or gives disks no serial number.
const (
	PortKind  = "cofferdam.port"  // PortVsock
	PortVsock = "vsock"           // pid 1 listens there for its host, on VsockPort
	DiskOrder = "cofferdam.disks" // the names of the disks in their order, commas between
	VsockPort = 1024
)

// MachineIdentity is the Identity.Dir of a machine.
const MachineIdentity = "/.cofferdam/identity"

// machineMagic begins the disk; u64 length and JSON follow.
const machineMagic = "cofferm1"

// maxMachine bounds what is read: MaxFileBytes of files in base64, and the rest.
const maxMachine = 8 << 20

// sector is the unit of a disk: what is written is filled up to it.
const sector = 512

// AppendMachine appends m as it is on its disk.
func AppendMachine(b []byte, m Machine) ([]byte, error) {
	p, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode machine: %w", err)
	}
	if len(p) > maxMachine {
		return nil, fmt.Errorf("machine of %d bytes, more than %d", len(p), maxMachine)
	}
	b = append(b, machineMagic...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
	b = append(b, p...)
	return append(b, bytes.Repeat([]byte{0}, (sector-len(b)%sector)%sector)...), nil
}

// ReadMachine is the reverse of AppendMachine.
func ReadMachine(r io.Reader) (m Machine, err error) {
	head := make([]byte, len(machineMagic)+8)
	if _, err := io.ReadFull(r, head); err != nil {
		return m, err
	}
	n := binary.BigEndian.Uint64(head[len(machineMagic):])
	if string(head[:len(machineMagic)]) != machineMagic || n > maxMachine {
		return m, fmt.Errorf("%w: disk of the machine", ErrProtocol)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return m, err
	}
	if err := json.Unmarshal(p, &m); err != nil {
		return m, fmt.Errorf("%w: disk of the machine: %w", ErrProtocol, err)
	}
	return m, nil
}
