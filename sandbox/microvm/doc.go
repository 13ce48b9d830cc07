// Package microvm builds boxes from a virtual machine with a kernel of its own:
// Debian's cloud kernel, cofferdam-init as pid 1, run by the monitor that the
// operator chose: QEMU, Firecracker or Cloud Hypervisor.
//
// It never decides what a box may reach or do, and it never calls an emulated
// machine a boundary: where a machine was not seen to run on this host's KVM,
// its boxes are of tier microvm-emulated, which satisfies nothing else. Its
// invariant: the monitor that runs a machine is confined before it reads a byte
// of the guest's (namespaces, a user of its own, a root with nothing of the host,
// seccomp, no network), or Create refuses and names the missing layer.
//
// In the namespace of an ordinary user it makes emulated machines alone, with
// monitors of that user's range of ids.
//
// # What a machine has
//
//	machine   disk, read-only: guest.Machine, what pid 1 builds the box from
//	root      disk, read-only, erofs: the image, the same for many boxes
//	work      disk, ext4: the workspace, of a real size
//	env       disk, ext4: what the setup phase made
//	line      pid 1's talk with the host: a serial port, or vsock; a console beside it
//	network   frames to and from whoever holds the wire
//
// # Files of the state folder
//
//	boxes/ID/      one box: its disks and the root of its monitor
//	memory/ID/     its memory, on a tmpfs of our own
//	journal/ID/    output of its commands, on the same
//	snapshot/ID/   a snapshot: memory, device state, workspace, what we knew
//	cache/         kernels, initramfs and roots, named by what is in them
//	kvm.json       what was proved of this host's KVM, and when, unless all
//	               drivers of the host keep that together
package microvm
