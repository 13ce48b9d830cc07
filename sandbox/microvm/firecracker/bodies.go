package firecracker

import (
	"net/http"
	"strings"

	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/netns"
)

// consoleRate is that of what a machine prints, in bytes a second; what is beyond is
// dropped.
const consoleRate = 64 << 10

type logger struct {
	Path   string `json:"log_path"`
	Level  string `json:"level"`
	Levels bool   `json:"show_level"`
}

type serial struct {
	Rate vmm.Bucket `json:"rate_limiter"`
}

type machineConfig struct {
	CPUs   int   `json:"vcpu_count"`
	Memory int64 `json:"mem_size_mib"`
	SMT    bool  `json:"smt"`
	Dirty  bool  `json:"track_dirty_pages"`
}

type bootSource struct {
	Kernel string `json:"kernel_image_path"`
	Initrd string `json:"initrd_path"`
	Args   string `json:"boot_args"`
}

type drive struct {
	ID       string      `json:"drive_id"`
	Path     string      `json:"path_on_host"`
	Root     bool        `json:"is_root_device"`
	ReadOnly bool        `json:"is_read_only"`
	Cache    string      `json:"cache_type"`
	Engine   string      `json:"io_engine"`
	Rate     vmm.Limiter `json:"rate_limiter"`
}

type networkInterface struct {
	ID     string      `json:"iface_id"`
	Device string      `json:"host_dev_name"`
	MAC    string      `json:"guest_mac"`
	MTU    int         `json:"mtu"`
	In     vmm.Limiter `json:"rx_rate_limiter"`
	Out    vmm.Limiter `json:"tx_rate_limiter"`
}

type vsock struct {
	CID  int    `json:"guest_cid"`
	Path string `json:"uds_path"`
}

type action struct {
	Type string `json:"action_type"`
}

type state struct {
	State string `json:"state"`
}

type snapshotCreate struct {
	Type   string `json:"snapshot_type"`
	State  string `json:"snapshot_path"`
	Memory string `json:"mem_file_path"`
}

type backend struct {
	Type string `json:"backend_type"`
	Path string `json:"backend_path"`
}

type snapshotLoad struct {
	State  string  `json:"snapshot_path"`
	Memory backend `json:"mem_backend"`
	Resume bool    `json:"resume_vm"`
}

// boot are the calls that make and start a machine, in their order. The metadata
// service is off because nobody turns it on.
func boot(v vmm.Machine) []vmm.Request {
	list := append(first(),
		vmm.Put("/serial", serial{vmm.PerSecond(consoleRate).Bandwidth}),
		vmm.Put("/machine-config", machineConfig{CPUs: processors(v.CPUs), Memory: v.Size >> 20}),
	)
	var names []string
	for _, d := range v.Disks {
		names = append(names, d.Serial)
	}
	words := []string{"reboot=k", "pci=off", guest.PortKind + "=" + guest.PortVsock, guest.DiskOrder + "=" + strings.Join(names, ",")}
	list = append(list, vmm.Put("/boot-source", bootSource{inKernel, inInitrd, vmm.CommandLine(words...)}))
	for _, d := range v.Disks {
		cache := "Unsafe" // nothing is written
		if d.Writable {
			cache = "Writeback"
		}
		list = append(list, vmm.Put("/drives/"+d.Serial, drive{
			ID: d.Serial, Path: inDisk(d.Serial), ReadOnly: !d.Writable, Cache: cache, Engine: "Sync", Rate: vmm.PerSecond(vmm.DiskRate),
		}))
	}
	return append(list,
		vmm.Put("/network-interfaces/net", networkInterface{
			ID: "net", Device: vmm.TAP, MAC: netns.BoxMAC, MTU: netns.MTU, In: vmm.PerSecond(vmm.NetworkRate), Out: vmm.PerSecond(vmm.NetworkRate),
		}),
		vmm.Put("/vsock", vsock{vmm.GuestCID, vmm.VsockSocket}),
		vmm.Put("/entropy", struct{}{}),
		vmm.Put("/actions", action{"InstanceStart"}),
	)
}

// first is what may be asked before a machine is loaded as well.
func first() []vmm.Request {
	return []vmm.Request{vmm.Put("/logger", logger{inLog, "Warning", true})}
}

// load are the calls that make a machine of a saved one. It is paused.
func load() []vmm.Request {
	return append(first(), vmm.OfMemory("/snapshot/load", snapshotLoad{inState, backend{"File", inMemory}, false}))
}

// processors is a number of them that a machine may have: one, or an even one.
func processors(n int) int {
	const most = 32
	if n = min(n, most); n <= 1 {
		return 1
	}
	return n + n%2
}

var (
	pause  = vmm.Request{Method: http.MethodPatch, Path: "/vm", Body: state{"Paused"}}
	resume = vmm.Request{Method: http.MethodPatch, Path: "/vm", Body: state{"Resumed"}}
	save   = vmm.OfMemory("/snapshot/create", snapshotCreate{"Full", toState, toMemory})
)
