// Command cofferdam-runsc is gVisor's own command line: the program that every
// box's kernel (sentry) and file server (gofer) is.
//
// It has nothing of Cofferdam in it, so that nothing of Cofferdam is in the
// address space that hostile code talks to. It must be built static
// (CGO_ENABLED=0): the sandbox starts itself again inside an empty root.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }
