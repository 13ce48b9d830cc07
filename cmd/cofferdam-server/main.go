// Command cofferdam-server is the API, the gateways, the sessions, the task
// worker and the vault in one process. It is started by "cofferdam serve" and
// never by hand in ordinary use; all it does is in internal/daemon.
package main

import (
	"fmt"
	"os"

	"cofferdam"
	"cofferdam/internal/daemon"
	"cofferdam/internal/userns"
)

func main() {
	if err := userns.Settle(); err != nil {
		fmt.Fprintf(os.Stderr, "cofferdam: cannot serve: %v\nhint: %s\n", err, cofferdam.HintOf(err))
		os.Exit(1)
	}
	os.Exit(daemon.Main(os.Args[1:]))
}
