// Command cofferdam is the command line and the client of a Cofferdam server.
//
// It links nothing large, so that it starts fast: server, keeper and boxes are
// programs of their own beside it. Its invariant is that it holds no logic: all
// of it is in internal/cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"cofferdam/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once
	os.Exit(cli.Main(ctx, cli.ThisSystem(), os.Args[1:]))
}
