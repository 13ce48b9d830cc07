package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/internal/userns"
	"cofferdam/sandbox/cgroup"
	"cofferdam/sandbox/wall"
)

// Layers that are missing before pid 1 runs.
const (
	layerUser = "user-namespace"
	layerIDs  = "group-ids"
	layerInit = "init-program"
)

// fixes says what an operator does about a missing layer.
var fixes = map[string]string{
	layerUser:          "allow user namespaces: sysctl -w user.max_user_namespaces=10000; in a container, run with --security-opt seccomp=unconfined or use the gvisor tier as root",
	layerInit:          "build and install all programs of one release together: make build",
	wall.LayerMount:    "the kernel needs mount namespaces and open_tree (Linux 5.12); in a container, allow mounts, or use another tier",
	wall.LayerNetwork:  "the kernel needs network namespaces; in a container, allow CAP_NET_ADMIN",
	wall.LayerTAP:      "load the kernel module: modprobe tun; in a container, pass --device /dev/net/tun; for ordinary users: chmod 0666 /dev/net/tun, as udev does",
	wall.LayerLandlock: "start the kernel with landlock in its lsm= list; Linux 5.19 or later has what is needed",
	wall.LayerSeccomp:  "use a kernel with CONFIG_SECCOMP_FILTER",
	wall.LayerRights:   "in a container, allow CAP_SETPCAP",
	layerIDs:           "give the user a range of at least 65,535 ids and group ids: as root, usermod --add-subuids 100000-165535 --add-subgids 100000-165535 NAME",
	layerRoot:          "run the keeper as root; for one command without a keeper: cofferdam run",
	layerGroups:        "mount the cgroup controllers cpu, memory, pids and freezer at " + cgroup.Root + ", writable",
	layerDisk:          "install e2fsprogs and load the kernel module loop: modprobe loop; in a container, pass the loop devices",
	layerState:         "choose a state folder on a local disk that can be written",
}

// missing is the error for a layer that the host does not offer.
func missing(op, layer string, err error) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Unavailable, Subject: "layer " + layer, Reason: err.Error(), Hint: fixOf(layer, err), Err: err,
	}
}

// restrictFile says whether Ubuntu's AppArmor keeps programs without a profile
// from using user namespaces.
const restrictFile = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"

// fixOf is the fix on this host of a layer that is missing for the reason err, which
// may be what pid 1 wrote of it.
func fixOf(layer string, err error) string {
	fix := fixFor(layer, os.Geteuid(), restricted(restrictFile))
	if layer == wall.LayerTAP && fix == fixes[layer] && strings.Contains(err.Error(), unix.EACCES.Error()) {
		return closedTAP
	}
	return fix
}

// closedTAP is the fix where the device is there and not for this user.
const closedTAP = "as root, once: chmod 0666 /dev/net/tun, as udev does; nobody gets a device by that in a network that is not theirs already"

// fixFor is the fix of a layer for a user. AppArmor lets an ordinary user's
// namespace come into being and takes its rights: what shows is the first layer
// that needs one.
func fixFor(layer string, euid int, restricted bool) string {
	needsRights := []string{layerUser, wall.LayerMount, wall.LayerNetwork, wall.LayerTAP, wall.LayerRights}
	if !restricted || !slices.Contains(needsRights, layer) || euid == 0 && layer != layerUser {
		return fixes[layer]
	}
	return userns.AppArmor()
}

func restricted(file string) bool {
	data, err := os.ReadFile(file)
	return err == nil && strings.TrimSpace(string(data)) != "0"
}

// namespaceError explains why cofferdam-init did not start.
func namespaceError(s starting, err error) error {
	const op = "process.start"
	if e := executable(s.path); e != nil {
		return missing(op, layerInit, e)
	}
	if (s.inner || os.Geteuid() != 0) && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EUSERS)) {
		return missing(op, layerUser, err)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
		return missing(op, wall.LayerMount, err)
	}
	return missing(op, layerInit, err)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not there", path)
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

// reported is the error that pid 1 told of.
func reported(op string, r wall.Report) error {
	if r.Layer != "" {
		return missing(op, r.Layer, errors.New(r.Error))
	}
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.Unavailable, Subject: "box of tier process", Reason: r.Error, Hint: "cofferdam doctor checks this host",
	}
}

// invalid is the error for a box that cannot be had.
func invalid(op, subject, reason, hint string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}
