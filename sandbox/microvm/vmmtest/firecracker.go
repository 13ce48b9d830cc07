package vmmtest

import "errors"

// Firecracker is the states of one, as its description says: what is configured
// after a machine runs, loaded into one that is configured, or saved while it runs,
// is refused.
type Firecracker struct {
	Bodies map[string]map[string]any // of each call, the last

	configured, running, paused bool
}

// Act is for Stub.Act.
func (a *Firecracker) Act(method, path string, body map[string]any) (any, error) {
	call := method + " " + path
	if a.Bodies == nil {
		a.Bodies = map[string]map[string]any{}
	}
	a.Bodies[call] = body
	switch {
	case call == "GET /":
		state := "Not started"
		if a.running {
			state = "Running"
		}
		if a.paused {
			state = "Paused"
		}
		return map[string]string{"app_name": "Firecracker", "id": "x", "state": state, "vmm_version": "1.16.1"}, nil
	case call == "PUT /logger" || call == "PUT /metrics":
		return nil, nil
	case call == "PATCH /vm":
		if !a.running {
			return nil, errors.New("no machine runs")
		}
		a.paused = body["state"] == "Paused"
	case call == "PUT /snapshot/create":
		if !a.paused {
			return nil, errors.New("the machine is not paused")
		}
	case call == "PUT /snapshot/load":
		if a.configured || a.running {
			return nil, errors.New("there is a machine already")
		}
		a.running, a.paused = true, body["resume_vm"] != true
	case a.running:
		return nil, errors.New("the machine runs already")
	case call == "PUT /actions":
		if a.Bodies["PUT /boot-source"] == nil || body["action_type"] != "InstanceStart" {
			return nil, errors.New("nothing to start")
		}
		a.running = true
	default:
		a.configured = true
	}
	return nil, nil
}

// Fault is an error as Firecracker says it, for Stub.Fail.
func Fault(reason string) any { return map[string]string{"fault_message": reason} }
