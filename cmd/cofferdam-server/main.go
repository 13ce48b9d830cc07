// Command cofferdam-server is the API, the gateways, the sessions, the task
// worker and the vault in one process. It is started by "cofferdam serve" and
// never by hand in ordinary use; all it does is in internal/daemon.
package main

import (
	"os"

	"cofferdam/internal/daemon"
)

func main() { os.Exit(daemon.Main(os.Args[1:])) }
