// Command cofferdam-engine is the durable engine: a Temporal server on one
// SQLite file, bound to loopback, that lets in only who shows a certificate of
// the authority it was given. It is a module of its own, so that everything
// else builds and is checked without Temporal's server.
//
// It never holds the truth about a task: that is in the store of the server that
// started it, and this program's file may be dropped at any time. The invariant:
// it lives no longer than the one who holds its standard input.
//
// # Protocol
//
// Standard input carries one line of JSON (see Settings) and then stays open;
// its end ends the program. Standard output carries one line of JSON once
// clients are served: {"address":"127.0.0.1:PORT"}. Standard error is a log.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSettings bounds the first line: a handful of PEM blocks and a path.
const maxSettings = 256 << 10

// Settings is the first line of standard input.
type Settings struct {
	Dir       string `json:"dir"`       // folder of the engine's own; made if missing
	Namespace string `json:"namespace"` // made if missing
	// PEM: the engine's certificate and key, and the authority of all clients.
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Authority   string `json:"authority"`
	// Fresh drops what the folder holds: the store starts everything again.
	Fresh bool `json:"fresh"`
}

// Exit codes beside 0 and 1.
const (
	exitUsage = 2
	exitTaken = 3 // another engine holds the folder
)

func main() {
	code, err := run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-engine: "+err.Error())
	}
	os.Exit(code)
}

func run(stdin io.Reader, stdout io.Writer) (int, error) {
	in := bufio.NewReaderSize(stdin, maxSettings)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return exitUsage, fmt.Errorf("reading settings from standard input: %w", err)
	}
	var s Settings
	if err := json.Unmarshal(line, &s); err != nil {
		return exitUsage, fmt.Errorf("reading settings from standard input: %w", err)
	}
	lock, err := takeDir(s.Dir)
	if err != nil {
		if errors.Is(err, errTaken) {
			return exitTaken, err
		}
		return 1, err
	}
	defer lock.Close()
	// The one who started us may go away at any time, also while we start: then
	// nobody needs what we do, and the file is safe against a sudden end.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, in)
	}()
	started := make(chan error, 1)
	var address string // written before started is sent on
	go func() {
		var err error
		address, err = start(s)
		started <- err
	}()
	select {
	case err := <-started:
		if err != nil {
			return 1, err
		}
	case <-gone:
		return 0, nil
	}
	if err := json.NewEncoder(stdout).Encode(map[string]string{"address": address}); err != nil {
		return 1, err
	}
	<-gone
	// An orderly stop takes seconds and saves nothing: the file is safe against a
	// sudden end, and a successor waits for the lock that we hold.
	return 0, nil
}
