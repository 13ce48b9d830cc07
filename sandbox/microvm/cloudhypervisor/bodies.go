package cloudhypervisor

import (
	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/netns"
)

// prefix is that of every path of the API.
const prefix = "/api/v1"

// Names of things in the monitor's root.
const (
	inProgram = "/vm/cloud-hypervisor"
	inKernel  = "/vm/kernel"
	inInitrd  = "/vm/initrd"
	inSerial  = vmm.RunDir + "/serial.socket"
	inSave    = "/save" // what it saves; its own for as long as it does
	inLoad    = "/load" // what it is to load
)

func inDisk(serial string) string { return "/vm/disk-" + serial }

type cpus struct {
	Boot   int  `json:"boot_vcpus"`
	Max    int  `json:"max_vcpus"`
	Nested bool `json:"nested"`
}

type memory struct {
	Size      int64 `json:"size"`
	Mergeable bool  `json:"mergeable"`
	Shared    bool  `json:"shared"`
}

type payload struct {
	Kernel string `json:"kernel"`
	Initrd string `json:"initramfs"`
	Args   string `json:"cmdline"`
}

type disk struct {
	ID       string      `json:"id"`
	Path     string      `json:"path"`
	ReadOnly bool        `json:"readonly"`
	Serial   string      `json:"serial"`
	Type     string      `json:"image_type"`
	Rate     vmm.Limiter `json:"rate_limiter_config"`
}

type network struct {
	ID   string      `json:"id"`
	TAP  string      `json:"tap"`
	MAC  string      `json:"mac"`
	Rate vmm.Limiter `json:"rate_limiter_config"`
	TSO  bool        `json:"offload_tso"`
	UFO  bool        `json:"offload_ufo"`
	Sum  bool        `json:"offload_csum"`
}

type rng struct {
	Source string `json:"src"`
}

type vsock struct {
	CID  int    `json:"cid"`
	Path string `json:"socket"`
}

type console struct {
	Mode string `json:"mode"`
	Path string `json:"socket,omitempty"`
}

type rule struct {
	Path   string `json:"path"`
	Access string `json:"access"`
}

type config struct {
	CPUs     cpus      `json:"cpus"`
	Memory   memory    `json:"memory"`
	Payload  payload   `json:"payload"`
	Disks    []disk    `json:"disks"`
	Networks []network `json:"net"`
	RNG      rng       `json:"rng"`
	Vsock    vsock     `json:"vsock"`
	Serial   console   `json:"serial"`
	Console  console   `json:"console"`
	Landlock bool      `json:"landlock_enable"`
	Rules    []rule    `json:"landlock_rules"`
}

type destination struct {
	URL string `json:"destination_url"`
}

type source struct {
	URL    string `json:"source_url"`
	Resume bool   `json:"resume"`
}

// configOf is the description of a machine.
func configOf(v vmm.Machine) config {
	c := config{
		CPUs:     cpus{Boot: v.CPUs, Max: v.CPUs},
		Memory:   memory{Size: v.Size},
		Payload:  payload{inKernel, inInitrd, vmm.CommandLine("reboot=k", guest.PortKind+"="+guest.PortVsock)},
		Networks: []network{{ID: "net", TAP: vmm.TAP, MAC: netns.BoxMAC, Rate: vmm.PerSecond(vmm.NetworkRate)}},
		RNG:      rng{"/dev/urandom"},
		Vsock:    vsock{vmm.GuestCID, vmm.VsockSocket},
		Serial:   console{"Socket", inSerial},
		Console:  console{Mode: "Off"},
		Landlock: true,
		Rules:    []rule{{vmm.RunDir, "rw"}, {inSave, "rw"}, {inLoad, "r"}},
	}
	for _, d := range v.Disks {
		c.Disks = append(c.Disks, disk{ID: d.Serial, Path: inDisk(d.Serial), ReadOnly: !d.Writable, Serial: d.Serial, Type: "Raw", Rate: vmm.PerSecond(vmm.DiskRate)})
	}
	return c
}

// boot are the calls that make and start a machine, in their order.
func boot(v vmm.Machine) []vmm.Request {
	return []vmm.Request{vmm.Put("/vm.create", configOf(v)), vmm.Put("/vm.boot", nil)}
}

var (
	pause  = vmm.Put("/vm.pause", nil)
	resume = vmm.Put("/vm.resume", nil)
	save   = vmm.OfMemory("/vm.snapshot", destination{"file://" + inSave})
	load   = vmm.OfMemory("/vm.restore", source{"file://" + inLoad, false})
)
