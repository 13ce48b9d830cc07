// Command cofferdam-wire is the network behind the box of one "cofferdam run",
// and its gateways. The run starts it when its box sends its first packet, with
// the talk of package network as descriptor 3 and the network device as 4; with
// "trust DIR" it makes the files by which boxes trust the authority, of the roots
// that it reads. Nobody starts it by hand.
package main

import (
	"context"
	"fmt"
	"os"

	"cofferdam/internal/local/gateways"
)

func main() {
	if err := gateways.Main(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-wire: "+err.Error())
		os.Exit(1)
	}
}
