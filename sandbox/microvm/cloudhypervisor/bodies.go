package cloudhypervisor

import (
	"context"
	"net/http"
	"time"

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
	inRun     = "/run" // its sockets; in memory
	inAPI     = inRun + "/api.socket"
	inVsock   = inRun + "/vsock.socket"
	inSerial  = inRun + "/serial.socket"
	inSave    = "/save" // what it saves; its own for as long as it does
	inLoad    = "/load" // what it is to load
)

func inDisk(serial string) string { return "/vm/disk-" + serial }

// Rates of one machine, the same as with every monitor that has them: each disk,
// and the network in both directions together.
const (
	diskRate    = 512 << 20 // bytes a second
	networkRate = 256 << 20 // bytes a second
)

// guestCID is the machine's name on its own vsock: 0 to 2 have a meaning.
const guestCID = 3

type bucket struct {
	Size   int64 `json:"size"`
	Refill int64 `json:"refill_time"` // milliseconds
}

type limiter struct {
	Bandwidth bucket `json:"bandwidth"`
}

func perSecond(bytes int64) limiter {
	return limiter{bucket{Size: bytes, Refill: time.Second.Milliseconds()}}
}

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
	ID       string  `json:"id"`
	Path     string  `json:"path"`
	ReadOnly bool    `json:"readonly"`
	Serial   string  `json:"serial"`
	Type     string  `json:"image_type"`
	Rate     limiter `json:"rate_limiter_config"`
}

type network struct {
	ID   string  `json:"id"`
	TAP  string  `json:"tap"`
	MAC  string  `json:"mac"`
	Rate limiter `json:"rate_limiter_config"`
	TSO  bool    `json:"offload_tso"`
	UFO  bool    `json:"offload_ufo"`
	Sum  bool    `json:"offload_csum"`
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

// request is one call of the API.
type request struct {
	method, path string
	body         any
	patience     time.Duration
}

// configOf is the description of a machine.
func configOf(v vmm.Machine) config {
	c := config{
		CPUs:     cpus{Boot: v.CPUs, Max: v.CPUs},
		Memory:   memory{Size: v.Size},
		Payload:  payload{inKernel, inInitrd, vmm.CommandLine("reboot=k", guest.PortKind+"="+guest.PortVsock)},
		Networks: []network{{ID: "net", TAP: vmm.TAP, MAC: netns.BoxMAC, Rate: perSecond(networkRate)}},
		RNG:      rng{"/dev/urandom"},
		Vsock:    vsock{guestCID, inVsock},
		Serial:   console{"Socket", inSerial},
		Console:  console{Mode: "Off"},
		Landlock: true,
		Rules:    []rule{{inRun, "rw"}, {inSave, "rw"}, {inLoad, "r"}},
	}
	for _, d := range v.Disks {
		c.Disks = append(c.Disks, disk{ID: d.Serial, Path: inDisk(d.Serial), ReadOnly: !d.Writable, Serial: d.Serial, Type: "Raw", Rate: perSecond(diskRate)})
	}
	return c
}

// boot are the calls that make and start a machine, in their order.
func boot(v vmm.Machine) []request {
	return []request{
		{http.MethodPut, "/vm.create", configOf(v), 0},
		{http.MethodPut, "/vm.boot", nil, 0},
	}
}

var (
	pause  = request{http.MethodPut, "/vm.pause", nil, 0}
	resume = request{http.MethodPut, "/vm.resume", nil, 0}
	save   = request{http.MethodPut, "/vm.snapshot", destination{"file://" + inSave}, vmm.MemoryPatience}
	load   = request{http.MethodPut, "/vm.restore", source{"file://" + inLoad, false}, vmm.MemoryPatience}
)

// ask makes calls in their order, up to the first that fails.
func ask(ctx context.Context, api *vmm.API, list ...request) error {
	for _, r := range list {
		if err := api.Call(ctx, r.method, r.path, r.body, nil, r.patience); err != nil {
			return err
		}
	}
	return nil
}
