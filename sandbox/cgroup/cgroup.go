// Package cgroup keeps control groups: one for each box of a driver, below a parent
// of the driver's own. On version 2 there is one tree; on version 1, also where
// version 2 is mounted beside it, every controller is a tree of its own.
//
// It never decides what a box may use: drivers say so. Its invariant: what End
// reports as ended has no process and no group left in any tree.
//
// Boxes on version 2 are not run here: the controllers of these machines are bound
// to version 1. What is read and written there is tested on a folder that looks
// like it; docs/SPECIFICATION.md says what was run elsewhere.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is where control groups are mounted.
const Root = "/sys/fs/cgroup"

// Needs are the controllers without which a driver has no groups.
type Needs struct {
	V1 []string // each a tree
	V2 []string // of the one tree, handed down to each group
}

// Groups are those of one driver's boxes. The zero value is of a host that has
// none: every step on it does nothing, and every counter is zero.
type Groups struct {
	V2 bool

	root   string
	parent string   // "/cofferdam-…", in every tree
	trees  []string // mount points; none: there are no groups
	hand   []string // controllers that version 2 hands down
}

// Find looks at the host. root is Root, but in tests; parent begins with a slash.
// An error says what is missing, and there are no groups then.
func Find(root, parent string, n Needs) (Groups, error) {
	g := Groups{root: root, parent: parent}
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return g, fmt.Errorf("look at %s: %w", root, err)
	}
	if g.V2 = st.Type == unix.CGROUP2_SUPER_MAGIC; g.V2 {
		err := errors.Join(hasControllers(root, n.V2), unix.Access(root, unix.W_OK))
		if err == nil {
			g.trees, g.hand = []string{root}, n.V2
		}
		return g, err
	}
	var trees []string
	for _, want := range n.V1 {
		tree := filepath.Join(root, want)
		if !isV1(tree) {
			return g, fmt.Errorf("controller %s is not mounted at %s", want, tree)
		}
		if err := unix.Access(tree, unix.W_OK); err != nil {
			return g, fmt.Errorf("controller %s: %w", want, err)
		}
		trees = append(trees, tree)
	}
	g.trees = trees
	return g, nil
}

// isV1 says whether a tree of version 1 is mounted there.
func isV1(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.CGROUP_SUPER_MAGIC
}

// hasControllers names a controller that version 2 does not have here.
func hasControllers(root string, wanted []string) error {
	have, err := os.ReadFile(root + "/cgroup.controllers")
	if err != nil {
		return err
	}
	for _, want := range wanted {
		if !slices.Contains(strings.Fields(string(have)), want) {
			return fmt.Errorf("controller %s is not there", want)
		}
	}
	return nil
}

// None says that there are no groups.
func (g Groups) None() bool { return len(g.trees) == 0 }

// Parent is the path of the driver's own group in every tree.
func (g Groups) Parent() string { return g.parent }

// Name is the path of a box's group in every tree.
func (g Groups) Name(box string) string { return g.parent + "/" + box }

// Dir is the folder of a box's group for one controller; box "": of the parent.
func (g Groups) Dir(controller, box string) string {
	if g.V2 {
		controller = ""
	}
	return filepath.Join(g.root, controller, g.Name(box))
}

// Prepare makes the parent groups; on version 2 groups below have controllers
// only if each group above hands them down.
func (g Groups) Prepare() error {
	for _, tree := range g.trees {
		if err := os.Mkdir(tree+g.parent, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if !g.V2 || g.None() {
		return nil
	}
	for _, dir := range []string{g.root, g.root + g.parent} {
		if err := write(dir, "cgroup.subtree_control", "+"+strings.Join(g.hand, " +")); err != nil {
			return err
		}
	}
	return nil
}

func write(dir, file, value string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644)
}

// Make makes a box's group in every tree. Where one is there already, the error is
// os.ErrExist, and the others are made.
func (g Groups) Make(box string) error {
	err := g.Prepare()
	for _, tree := range g.trees {
		err = errors.Join(err, os.Mkdir(tree+g.Name(box), 0o755))
	}
	return err
}

// Add puts processes, and what they will start, into a box's group.
func (g Groups) Add(box string, pids ...int) error {
	for _, tree := range g.trees {
		for _, pid := range pids {
			if err := write(tree+g.Name(box), "cgroup.procs", strconv.Itoa(pid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// List names every box that has a group in some tree.
func (g Groups) List() []string {
	var names []string
	for _, tree := range g.trees {
		entries, err := os.ReadDir(tree + g.parent)
		if err != nil {
			continue // there are none
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Close removes the parent groups, if they are empty.
func (g Groups) Close() {
	for _, tree := range g.trees {
		_ = unix.Rmdir(tree + g.parent)
	}
}
