package vmmtest

import (
	"fmt"
	"strings"
)

// CloudHypervisor is the states of one, as its description says.
type CloudHypervisor struct {
	Bodies map[string]map[string]any // of each call, without what all begin with, the last

	state string // "": there is no machine
}

// Act is for Stub.Act.
func (a *CloudHypervisor) Act(method, path string, body map[string]any) (any, error) {
	path = strings.TrimPrefix(path, "/api/v1")
	if a.Bodies == nil {
		a.Bodies = map[string]map[string]any{}
	}
	a.Bodies[path] = body
	from, to := map[string]string{"/vm.create": "", "/vm.boot": "Created", "/vm.pause": "Running", "/vm.resume": "Paused", "/vm.snapshot": "Paused", "/vm.restore": ""},
		map[string]string{"/vm.create": "Created", "/vm.boot": "Running", "/vm.pause": "Paused", "/vm.resume": "Running", "/vm.snapshot": "Paused", "/vm.restore": "Paused"}
	switch path {
	case "/vmm.ping":
		return map[string]string{"version": "53.0"}, nil
	case "/vm.info":
		return map[string]any{"state": a.state, "config": a.Bodies["/vm.create"]}, nil
	}
	if a.state != from[path] {
		return nil, fmt.Errorf("%s of a machine that is %q", path, a.state)
	}
	a.state = to[path]
	return nil, nil
}
