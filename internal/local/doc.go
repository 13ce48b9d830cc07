// Package local runs one command in a throw-away box on the caller's own
// machine, as any user, without a server: the command sees the host with
// credentials unreadable, may write the current folder, and has a network whose
// only end is in a program of this run, with the gateways of package egress behind
// it: cofferdam-wire on Linux, this process on a Mac.
//
// It never runs a command outside a box: what is missing is refused. The
// invariant: the start of the command is on record before it runs, and a run
// that was recorded ends sealed, exported and checkable with the key beside it,
// also when this process was killed (by the next run of the same user).
//
// # State folder
//
//	keys/trace, keys/trace.pub   signs the traces; the second one checks them
//	keys/gateway-ca.pem          authority under which TLS of boxes is read
//	trust/                       what boxes read to trust it, made from this machine's roots
//	live/ID/                     record of a run that goes on; in memory if there is a place that outlives a login
//	traces/TIME-ID.jsonl         exports of the last runs
//	copies/ID/                   workspaces of runs with --copy
package local
