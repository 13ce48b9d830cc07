package firecracker

import (
	"context"
	"net/http"
	"strings"
	"time"

	"cofferdam/sandbox/guest"
	"cofferdam/sandbox/microvm/vmm"
	"cofferdam/sandbox/netns"
)

// Rates of one machine, so that it leaves something for its neighbours: each disk,
// and each direction of the network.
const (
	diskRate    = 512 << 20 // bytes a second
	networkRate = 256 << 20 // bytes a second
	consoleRate = 64 << 10  // bytes a second; what is beyond is dropped
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

func perSecond(bytes int64) bucket { return bucket{Size: bytes, Refill: time.Second.Milliseconds()} }

type logger struct {
	Path   string `json:"log_path"`
	Level  string `json:"level"`
	Levels bool   `json:"show_level"`
}

type serial struct {
	Rate bucket `json:"rate_limiter"`
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
	ID       string  `json:"drive_id"`
	Path     string  `json:"path_on_host"`
	Root     bool    `json:"is_root_device"`
	ReadOnly bool    `json:"is_read_only"`
	Cache    string  `json:"cache_type"`
	Engine   string  `json:"io_engine"`
	Rate     limiter `json:"rate_limiter"`
}

type networkInterface struct {
	ID     string  `json:"iface_id"`
	Device string  `json:"host_dev_name"`
	MAC    string  `json:"guest_mac"`
	MTU    int     `json:"mtu"`
	In     limiter `json:"rx_rate_limiter"`
	Out    limiter `json:"tx_rate_limiter"`
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

// request is one call of the API.
type request struct {
	method, path string
	body         any
	patience     time.Duration
}

// boot are the calls that make and start a machine, in their order. The metadata
// service is off because nobody turns it on.
func boot(v vmm.Machine) []request {
	list := append(first(),
		request{http.MethodPut, "/serial", serial{perSecond(consoleRate)}, 0},
		request{http.MethodPut, "/machine-config", machineConfig{CPUs: processors(v.CPUs), Memory: v.Size >> 20}, 0},
	)
	var names []string
	for _, d := range v.Disks {
		names = append(names, d.Serial)
	}
	words := []string{"reboot=k", "pci=off", guest.PortKind + "=" + guest.PortVsock, guest.DiskOrder + "=" + strings.Join(names, ",")}
	list = append(list, request{http.MethodPut, "/boot-source", bootSource{inKernel, inInitrd, vmm.CommandLine(words...)}, 0})
	for _, d := range v.Disks {
		cache := "Unsafe" // nothing is written
		if d.Writable {
			cache = "Writeback"
		}
		list = append(list, request{http.MethodPut, "/drives/" + d.Serial, drive{
			ID: d.Serial, Path: inDisk(d.Serial), ReadOnly: !d.Writable, Cache: cache, Engine: "Sync", Rate: limiter{perSecond(diskRate)},
		}, 0})
	}
	return append(list,
		request{http.MethodPut, "/network-interfaces/net", networkInterface{
			ID: "net", Device: vmm.TAP, MAC: netns.BoxMAC, MTU: netns.MTU, In: limiter{perSecond(networkRate)}, Out: limiter{perSecond(networkRate)},
		}, 0},
		request{http.MethodPut, "/vsock", vsock{guestCID, inVsock}, 0},
		request{http.MethodPut, "/entropy", struct{}{}, 0},
		request{http.MethodPut, "/actions", action{"InstanceStart"}, 0},
	)
}

// first is what may be asked before a machine is loaded as well.
func first() []request {
	return []request{{http.MethodPut, "/logger", logger{inLog, "Warning", true}, 0}}
}

// load are the calls that make a machine of a saved one. It is paused.
func load() []request {
	return append(first(), request{http.MethodPut, "/snapshot/load", snapshotLoad{inState, backend{"File", inMemory}, false}, vmm.MemoryPatience})
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
	pause  = request{http.MethodPatch, "/vm", state{"Paused"}, 0}
	resume = request{http.MethodPatch, "/vm", state{"Resumed"}, 0}
	save   = request{http.MethodPut, "/snapshot/create", snapshotCreate{"Full", toState, toMemory}, vmm.MemoryPatience}
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
