// Command stub stands for Cloud Hypervisor in the tests of its room: it speaks the
// API by its description, and opens what it is told of as that one would. What it
// is to do wrong, its kernel says.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"cofferdam/sandbox/microvm/vmmtest"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("cloud-hypervisor v53.0")
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cloud-hypervisor: "+err.Error())
		os.Exit(1)
	}
}

// orders are in the file that should be a kernel.
type orders struct {
	Description vmmtest.Description `json:"description"`
	Faults      map[string]string   `json:"faults"`
	Unfiltered  bool                `json:"unfiltered"` // it sets no filter of system calls
	Exit        bool                `json:"exit"`       // it ends before it serves
	Config      string              `json:"config"`     // what it saves as its configuration; "": what it was told
}

func run(args []string) error {
	if strings.Join(args, " ") != "--api-socket path=/run/api.socket --seccomp true" {
		return fmt.Errorf("arguments %q", args)
	}
	data, err := os.ReadFile("/vm/kernel")
	if err != nil {
		return err
	}
	var o orders
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	if o.Exit {
		return errors.New("it ends")
	}
	l, err := net.Listen("unix", "/run/api.socket")
	if err != nil {
		return err
	}
	states := new(vmmtest.CloudHypervisor)
	stub := &vmmtest.Stub{Description: o.Description, Faults: o.Faults}
	stub.Act = func(method, path string, body map[string]any) (any, error) {
		answer, err := states.Act(method, path, body)
		if err == nil {
			err = o.effect(strings.TrimPrefix(path, "/api/v1"), states)
		}
		return answer, err
	}
	return http.Serve(l, stub)
}

// effect opens and makes what a call names.
func (o orders) effect(path string, states *vmmtest.CloudHypervisor) error {
	switch path {
	case "/vm.create":
		return o.create(states.Bodies[path])
	case "/vm.boot":
		return o.filter()
	case "/vm.snapshot":
		config, err := json.Marshal(states.Bodies["/vm.create"])
		if err != nil {
			return err
		}
		if o.Config != "" {
			config = []byte(o.Config)
		}
		return errors.Join(vmmtest.Write("/save/config.json", string(config)), vmmtest.Write("/save/state.json", "state"), vmmtest.Write("/save/memory-ranges", "memory"))
	case "/vm.restore":
		data, err := os.ReadFile("/load/config.json")
		if err != nil {
			return err
		}
		var config map[string]any
		if err := json.Unmarshal(data, &config); err != nil {
			return err
		}
		return errors.Join(vmmtest.Holds("/load/state.json", "state"), vmmtest.Holds("/load/memory-ranges", "memory"), o.create(config), o.filter())
	}
	return nil
}

func (o orders) filter() error {
	if o.Unfiltered {
		return nil
	}
	return vmmtest.Filter()
}

func (o orders) create(config map[string]any) error {
	object := func(from map[string]any, name string) map[string]any { m, _ := from[name].(map[string]any); return m }
	text := func(from map[string]any, name string) string { s, _ := from[name].(string); return s }
	payload := object(config, "payload")
	errs := []error{vmmtest.Readable(text(payload, "kernel")), vmmtest.Readable(text(payload, "initramfs"))}
	disks, _ := config["disks"].([]any)
	for _, d := range disks {
		disk, _ := d.(map[string]any)
		if disk["readonly"] == true {
			errs = append(errs, vmmtest.Readable(text(disk, "path")))
			continue
		}
		f, err := os.OpenFile(text(disk, "path"), os.O_RDWR, 0)
		if err == nil {
			_, err = f.WriteString("written by the guest")
		}
		errs = append(errs, err)
	}
	networks, _ := config["net"].([]any)
	for _, n := range networks {
		network, _ := n.(map[string]any)
		errs = append(errs, vmmtest.TakeTAP(text(network, "tap")))
	}
	random, err := os.Open(text(object(config, "rng"), "src"))
	if err == nil {
		_, err = io.ReadFull(random, make([]byte, 8))
	}
	return errors.Join(append(errs, err, vmmtest.Listen(text(object(config, "vsock"), "socket")), o.serial(text(object(config, "serial"), "socket")))...)
}

// serial prints to whoever connects.
func (o orders) serial(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(c, "the guest's kernel prints\n") // who asked may be gone
		}
	}()
	for path, may := range map[string]bool{"/save/x": false, "/x": false, "/vm/x": false, "/usr/x": false, "/run/x": true} {
		if err := vmmtest.Write(path, "x"); (err == nil) != may {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return nil
}
