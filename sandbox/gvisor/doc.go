// Package gvisor builds boxes from gVisor's runsc with the systrap platform:
// the code in a box talks to a kernel of its own that runs in user space.
//
// It never decides what a box may reach or do: it builds the walls that a
// sandbox.Spec asks for and starts pid 1, which starts everything else. Its
// invariant: every wall is up before pid 1 runs, or Create refuses and names
// the missing layer with its fix; and after Destroy nothing of a box is left,
// neither process, mount, loop device, namespace, control group nor file.
//
// # What is in a box
//
//	/usr, /bin …   read-only, from the image
//	/etc           a copy, shared with other boxes: named files of the image, our own
//	               passwd, group, hosts, resolv.conf, hostname, nsswitch.conf
//	/work          the workspace: a file system of its own with a real size
//	/env           what the setup phase made: likewise
//	/tmp, /home/agent, /dev/shm   private, in memory, sized
//
// # Boxes that do not run
//
// A paused box is stopped by gVisor's kernel and then by the host's. A suspended
// one is on disk: its processes are gone, its network, pipes and journals stay,
// so that its commands go on as if nothing had been. A snapshot has memory and
// workspace at one moment; a box made from it is told who it is before it is
// handed out. Boxes that are made ahead wait stopped; they have ids of their own
// on the host and take the caller's when they are claimed, once.
//
// # Files of the state folder
//
//	boxes/ID/      one box: bundle, workspace, its own files and mount points
//	image/HASH/    what boxes of one image have at "/"; shared, never written
//	journal/ID/    output of its commands, on a tmpfs of our own
//	program/       copies of pid 1 that boxes link to
//	snapshots/ID/  memory and workspace of a box at one moment; outlives the keeper
//
// A workspace has its size by project quota where the file system of the state
// folder enforces them, else it is a sized image. An ordinary user can mount none:
// there it is in memory, or, if it is kept, a folder that is watched.
//
// gVisor's own state is in /run/cofferdam-HASH, and the control groups of boxes
// are in /cofferdam-HASH of each tree: HASH is of the path of the state folder.
// Environments (sandbox.Spec.Env) lie where the caller says: images, or, of an
// ordinary user, folders that boxes share read-only and one setup has alone.
package gvisor
