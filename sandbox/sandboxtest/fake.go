// Package sandboxtest has the suite that every sandbox driver must pass, and
// Fake, a driver for tests whose boxes bound nothing.
//
// It never runs in the product: only tests import it, and only Fake offers the
// tier "none". The invariant: what the suite asks of a driver it asks of Fake
// too, but for the walls; so a test that passes on Fake and fails elsewhere has
// found a wall, and an attack that fails on Fake as well has proved nothing.
package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam"
	"cofferdam/sandbox"
)

// Fake is a driver without a boundary. Its boxes see the host's files, network
// and devices and run as root, with folders of their own only at /work, /env and
// /home/agent; a pid namespace is there so that they can be ended. It is the
// positive control of attack scripts and stands in for a real driver in tests.
type Fake struct {
	sandbox.Lacks
	dir  string
	init string // path of cofferdam-init

	mu    sync.Mutex
	boxes map[cofferdam.BoxID]*fakeBox // guarded by mu; nil while one is made
}

var _ sandbox.Driver = (*Fake)(nil)

// NewFake makes a driver whose boxes keep their files under dir. It builds
// cofferdam-init there, so it must be called from within the module, as root.
func NewFake(dir string) (*Fake, error) {
	const op = "sandboxtest.NewFake"
	if os.Geteuid() != 0 {
		return nil, &cofferdam.Error{
			Op: op, Kind: cofferdam.Unavailable, Subject: "make driver without a boundary",
			Reason: "it needs root for mounts and a pid namespace", Hint: "run the tests as root",
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of boxes: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find folder of boxes: %w", err)
	}
	f := &Fake{Lacks: sandbox.Lacks{Tier: sandbox.None}, dir: dir, init: filepath.Join(dir, "cofferdam-init"), boxes: map[cofferdam.BoxID]*fakeBox{}}
	if _, err := os.Stat(f.init); err == nil {
		return f, nil
	}
	if err := Build(dir, "cofferdam-init"); err != nil {
		return nil, err
	}
	return f, nil
}

// Build builds programs of this module into dir. It also opens their sources, by
// which the go command knows that a test's kept result depends on them.
func Build(dir string, programs ...string) error {
	var paths []string
	for _, p := range programs {
		paths = append(paths, "cofferdam/cmd/"+p)
	}
	list := exec.Command("go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$.Dir}}/{{.}}\n{{end}}{{end}}{{end}}"}, paths...)...)
	sources, err := list.Output()
	if err != nil {
		return fmt.Errorf("list sources of %v: %w", programs, err)
	}
	for name := range strings.FieldsSeq(string(sources)) {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("open source of %v: %w", programs, err)
		}
		f.Close()
	}
	build := exec.Command("go", append([]string{"build", "-o", dir + "/"}, paths...)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v: %w: %s", programs, err, out)
	}
	return nil
}

// Close destroys all boxes.
func (f *Fake) Close() error {
	f.mu.Lock()
	var boxes []*fakeBox
	for _, b := range f.boxes {
		if b != nil {
			boxes = append(boxes, b)
		}
	}
	f.mu.Unlock()
	for _, b := range boxes {
		if err := b.Destroy(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// Check says what this driver is.
func (f *Fake) Check(ctx context.Context) ([]sandbox.Finding, error) {
	return []sandbox.Finding{{
		Name: "no-boundary", Level: "warn", Detail: "this driver is for tests and bounds nothing",
		Fix: "use another tier",
	}}, ctx.Err()
}

// Create makes a box.
func (f *Fake) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Box, error) {
	subject := "create box " + string(spec.ID)
	if spec.Tier != sandbox.None {
		return nil, &cofferdam.Error{
			Op: "sandboxtest.Create", Kind: cofferdam.Unavailable, Subject: subject,
			Reason: fmt.Sprintf("this driver has no boxes of tier %.40q, only of none", string(spec.Tier)), Hint: "ask for tier none",
		}
	}
	if spec.Snapshot != "" {
		return nil, sandbox.Lacking(spec.Tier, sandbox.CanSnapshot)
	}
	if spec.Workspace != "" {
		return nil, sandbox.Lacking(spec.Tier, sandbox.CanKeep)
	}
	if reason := refuse(spec); reason != "" {
		return nil, &cofferdam.Error{Op: "sandboxtest.Create", Kind: cofferdam.Invalid, Subject: subject, Reason: reason}
	}
	f.mu.Lock()
	_, taken := f.boxes[spec.ID]
	if !taken {
		f.boxes[spec.ID] = nil
	}
	f.mu.Unlock()
	if taken {
		return nil, &cofferdam.Error{Op: "sandboxtest.Create", Kind: cofferdam.Conflict, Subject: subject, Reason: "there is one with that id"}
	}
	b, err := f.make(ctx, spec)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		delete(f.boxes, spec.ID)
		return nil, err
	}
	f.boxes[spec.ID] = b
	return b, nil
}

// refuse says what is wrong with a spec, or nothing.
func refuse(spec sandbox.Spec) string {
	if len(spec.ID) != 34 || strings.Trim(string(spec.ID[2:]), "0123456789abcdef") != "" || spec.ID[:2] != "b-" {
		return fmt.Sprintf("id %.64q is not b- and 32 hexadecimal digits", string(spec.ID))
	}
	if spec.Image != "host" {
		if fi, err := os.Stat(spec.Image); !filepath.IsAbs(spec.Image) || err != nil || !fi.IsDir() {
			return fmt.Sprintf("image %.200q is neither host nor an absolute folder", spec.Image)
		}
	}
	l := spec.Limits
	if min(l.Memory, l.Disk, l.Temp, l.PIDs, l.OpenFiles) < 0 || l.CPU < 0 {
		return "a limit is negative"
	}
	if spec.Env != "" && !filepath.IsAbs(spec.Env) {
		return fmt.Sprintf("environment %.200q is not an absolute path", spec.Env)
	}
	if _, err := os.Stat(spec.Env); spec.Env != "" && !spec.SetupPhase && err != nil {
		return fmt.Sprintf("environment %.200q does not exist", spec.Env)
	}
	if err := sandbox.CheckFiles("sandboxtest.Create", spec.Files, true); err != nil {
		return err.Error()
	}
	return ""
}

// Open finds a box.
func (f *Fake) Open(ctx context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.boxes[id]; b != nil {
		return b, ctx.Err()
	}
	return nil, &cofferdam.Error{
		Op: "sandboxtest.Open", Kind: cofferdam.NotFound, Subject: fmt.Sprintf("box %.64q", string(id)),
		Reason: "there is none with that id",
	}
}

// List returns all boxes.
func (f *Fake) List(ctx context.Context) ([]sandbox.Status, error) {
	f.mu.Lock()
	var boxes []*fakeBox
	for _, b := range f.boxes {
		if b != nil {
			boxes = append(boxes, b)
		}
	}
	f.mu.Unlock()
	var list []sandbox.Status
	for _, b := range boxes {
		st, err := b.Status(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b sandbox.Status) int { return a.Created.Compare(b.Created) })
	return list, nil
}

func (f *Fake) forget(id cofferdam.BoxID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.boxes, id)
}

// kernel names what a box of this driver runs on.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "the host's kernel, no boundary"
	}
	return "the host's kernel " + unix.ByteSliceToString(u.Release[:]) + ", no boundary"
}

// startPatience is how long pid 1 may take for its first word.
const startPatience = 20 * time.Second
