package main

import (
	"errors"
	"os"
	"slices"
	"strings"

	"cofferdam/sandbox/cgroup"
)

// The names by which gVisor's package starts the two programs of a box.
const (
	sentryName = "runsc-sandbox" // its kernel
	goferName  = "runsc-gofer"   // its file server
)

// enter makes this process the program of a gVisor box that its name says, as part of
// the box's control groups. The keeper has it started in that program's place, with
// that program's arguments: the folder of the box is among them, and what else is to
// be said is there.
func enter(args []string) (asked bool, err error) {
	if len(args) < 3 || args[0] != sentryName && args[0] != goferName {
		return false, nil
	}
	dir := valueOf(args, "--bundle")
	if dir == "" {
		return true, errors.New("enter: no --bundle says where the box is")
	}
	s, err := cgroup.ReadStart(dir)
	if err == nil {
		argv := args
		if args[0] == sentryName { // the last one is the box's name
			argv = slices.Insert(slices.Clone(args), len(args)-1, s.Flags...)
		}
		err = s.Become(argv, os.Environ())
	}
	return true, errors.Join(err, cgroup.Fail(dir, err))
}

// valueOf is the value of a flag that is one argument or two; "" if it is not there.
func valueOf(args []string, flag string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
		if arg == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}
