package gvisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"cofferdam"
	"cofferdam/sandbox"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
)

// Bounds of the pool. Its size of each kind is Options.Pool.
const (
	// MaxPool is the largest Options.Pool: each box waits with about 15 MiB.
	MaxPool  = 16
	maxKinds = 8                // kinds of boxes that are made ahead
	keepKind = 15 * time.Minute // after the last box of a kind was asked for
	poolLook = 10 * time.Second // between looks at kinds and memory
	// shrinkTime is what the kernel of a box takes to hand memory back, measured:
	// 1.3 MiB go within 50 ms, nothing later.
	shrinkTime     = 50 * time.Millisecond
	warmTime       = 10 * time.Second       // a shell that does nothing takes some 10 ms
	refillAfter    = 200 * time.Millisecond // a claim: its first command takes some 10 ms
	minFreePercent = 10                     // percent of the host's memory below which the pool is given up
)

// pool makes boxes ahead. They wait stopped, so that they cost no time; one that
// was claimed never comes back.
type pool struct {
	d    *Driver
	size int // of each kind; 0: there is no pool

	mu    sync.Mutex
	kinds map[string]*kind // by Driver.key; guarded by mu

	more chan struct{} // there may be something to make
	stop context.CancelFunc
	over chan struct{} // closed once nothing is made any more
}

// kind is what boxes that were made ahead have in common.
type kind struct {
	spec  sandbox.Spec
	asked time.Time
	tired bool // one could not be made; tried again when the next is asked for
	boxes []*box
}

func newPool(d *Driver, size int) *pool {
	p := &pool{d: d, size: min(size, MaxPool), kinds: map[string]*kind{}, more: make(chan struct{}, 1), over: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if size <= 0 {
		close(p.over)
		return p
	}
	go p.run(ctx)
	return p
}

// claim returns a box of spec's kind that was made ahead, or nil. It remembers
// that the kind was asked for, so that the next one finds a box.
func (p *pool) claim(ctx context.Context, spec sandbox.Spec) *box {
	if p.size <= 0 || spec.SetupPhase || spec.Snapshot != "" || spec.Workspace != "" && p.d.keeps.Has(spec.Workspace) {
		return nil
	}
	defer p.wake()
	// The image is looked at while the box that will most likely be the one is told
	// who it is: both take some milliseconds, and nothing runs in it yet.
	var key string
	var unknown error
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		key, unknown = p.key(spec)
	}()
	b, of := p.likely(spec)
	var failed error
	if b != nil {
		failed = b.wakeAs(ctx, spec)
	}
	<-looked
	if unknown == nil {
		p.ask(key, spec)
	}
	if b != nil && (unknown != nil || of != key) { // what it is made of is not what it was
		b.abandon(ctx)
		b = nil
	}
	if unknown != nil {
		return nil // making the box will say why
	}
	for {
		if b == nil {
			if b = p.next(key); b == nil {
				return nil
			}
			failed = b.wakeAs(ctx, spec)
		}
		if failed == nil {
			failed = b.keepAs(ctx, spec)
		}
		if failed == nil {
			return b
		}
		p.d.o.Log.WarnContext(ctx, "a box that was made ahead does not answer", slog.Any("box", b.name), slog.Any("err", failed))
		b.abandon(ctx)
		if ctx.Err() != nil {
			return nil // whoever asked is gone: the other boxes are as good as before
		}
		b = nil
	}
}

// likely takes the box out of the pool, for good, that was last asked for as spec
// asks, with the key that its kind had then.
func (p *pool) likely(spec sandbox.Spec) (b *box, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var last *kind
	for name, k := range p.kinds {
		newer := last == nil || k.asked.After(last.asked)
		if newer && (k.spec.Workspace == "") == (spec.Workspace == "") && reflect.DeepEqual(alike(k.spec), alike(spec)) {
			last, key = k, name
		}
	}
	if last == nil {
		return nil, ""
	}
	return last.take(), key
}

// key is that of the boxes which can be made the one that spec asks for.
func (p *pool) key(spec sandbox.Spec) (string, error) {
	key, err := p.d.key(spec)
	if spec.Workspace != "" {
		key += ", its workspace can be kept"
	}
	return key, err
}

// ask notes that a kind is asked for.
func (p *pool) ask(key string, spec sandbox.Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[key]
	if k == nil {
		if len(p.kinds) >= maxKinds {
			return
		}
		k = &kind{spec: spec}
		p.kinds[key] = k
	}
	k.asked, k.tired = time.Now(), false
}

// next takes a box out of the pool for good.
func (p *pool) next(key string) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kinds[key].take()
}

// take is the box that waits longest, which is of the kind no more; nil if there is none.
func (k *kind) take() *box {
	if k == nil || len(k.boxes) == 0 {
		return nil
	}
	b := k.boxes[0]
	k.boxes = k.boxes[1:]
	return b
}

// warm runs in a box that nobody has yet what the first command of most will be:
// what a box has opened and read once takes half the time. What will give it its
// name waits in it from here on.
func (b *box) warm() (err error) {
	if hasCode {
		if b.namer, err = newNamer(b.d.conf, b.container); err != nil {
			return err
		}
	}
	ended := make(chan struct{})
	go func() { // it ends with the box at the latest
		defer close(ended)
		shell := control.ExecArgs{Argv: []string{"/bin/sh", "-c", ":"}, KUID: sandbox.UserID, KGID: sandbox.UserID}
		_, _ = execute(b.d.conf, b.container, shell) // an image needs none
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(warmTime):
		return errors.New("its shell does not end")
	}
}

// putToSleep stops a box that nobody has yet, with as little memory as it can have.
func (b *box) putToSleep() error {
	if err := shrink(b.container); err != nil {
		return err
	}
	time.Sleep(shrinkTime)
	return sandbox.Signal(b.container.SandboxPid(), unix.SIGSTOP)
}

// wakeAs lets a waiting box go on and tells it that it is the one that spec asks for.
func (b *box) wakeAs(ctx context.Context, spec sandbox.Spec) error {
	if err := sandbox.Signal(b.container.SandboxPid(), unix.SIGCONT); err != nil {
		return err
	}
	renamed := b.spec.Hostname != spec.Hostname
	b.spec, b.created = spec, time.Now()
	var err error
	switch {
	case b.namer != nil:
		err = b.namer.name(spec.Hostname)
		b.namer = nil
	case renamed:
		err = nameBox(b.d.conf, b.container, spec.Hostname)
	}
	if err != nil {
		return err
	}
	return b.Host.Wake(ctx, identity(b.spec))
}

// keepAs makes the workspace of a box the one that spec names, if it is to be kept.
func (b *box) keepAs(ctx context.Context, spec sandbox.Spec) error {
	if spec.Workspace == "" {
		return nil
	}
	err := b.attach(ctx, b.path(workImage))
	if err == nil && !b.kept.Fresh { // it has come meanwhile, and this box has another
		err = errors.New("there is a workspace already")
	}
	return err
}

func (p *pool) wake() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// run makes boxes, one at a time, and drops those that nobody wants.
func (p *pool) run(ctx context.Context) {
	defer close(p.over)
	look := time.NewTicker(poolLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			p.trim(ctx, time.Now())
		case <-p.more:
			select { // who claimed a box wants the processors now
			case <-ctx.Done():
				return
			case <-time.After(refillAfter):
			}
		}
		for ctx.Err() == nil && p.makeOne(ctx) {
		}
	}
}

// makeOne makes a box of a kind that has too few; false if there is none, or it
// could not be made: then the next claim of that kind tries again.
func (p *pool) makeOne(ctx context.Context) bool {
	key, spec, ok := p.wanted()
	if !ok || memoryIsShort() {
		return false
	}
	ahead := spec
	ahead.ID, ahead.Hostname, ahead.Workspace = cofferdam.BoxID(cofferdam.NewID("b")), sandbox.DefaultHostname, ""
	b := p.d.newBox(ahead)
	b.ahead, b.keepable = true, spec.Workspace != ""
	err := b.build(ctx)
	if err == nil {
		err = b.warm()
	}
	if err == nil {
		err = b.putToSleep()
	}
	// What it was made of may have changed meanwhile: then it is of no kind.
	if now, e := p.key(spec); err == nil && (e != nil || now != key) {
		err = fmt.Errorf("its image or environment changed")
	}
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if k := p.kinds[key]; k != nil && ctx.Err() == nil {
			k.boxes = append(k.boxes, b)
			return true
		}
	}
	if err != nil && ctx.Err() == nil {
		p.d.o.Log.WarnContext(ctx, "making a box ahead", slog.Any("err", err))
		p.mu.Lock()
		if k := p.kinds[key]; k != nil { // those it has are as good as before
			k.tired = true
		}
		p.mu.Unlock()
	}
	b.abandon(context.WithoutCancel(ctx))
	return false
}

// wanted returns a kind that has too few boxes. The pool stays within what a
// host may hold.
func (p *pool) wanted() (key string, spec sandbox.Spec, ok bool) {
	room := maxBoxes - p.d.Count()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		room -= len(k.boxes)
	}
	for name, k := range p.kinds {
		if len(k.boxes) < p.size && room > 0 && !k.tired {
			return name, k.spec, true
		}
	}
	return "", sandbox.Spec{}, false
}

// trim drops kinds that nobody asks for, boxes that have ended, and all of them
// when the host is short of memory.
func (p *pool) trim(ctx context.Context, now time.Time) {
	short := memoryIsShort()
	var gone []*box
	p.mu.Lock()
	for key, k := range p.kinds {
		if short || now.Sub(k.asked) > keepKind {
			gone = append(gone, k.boxes...)
			delete(p.kinds, key)
			continue
		}
		var alive []*box
		for _, b := range k.boxes {
			select {
			case <-b.Host.Done():
				gone = append(gone, b)
			default:
				alive = append(alive, b)
			}
		}
		k.boxes = alive
	}
	p.mu.Unlock()
	for _, b := range gone {
		b.abandon(ctx)
	}
}

// close ends the pool and every box in it.
func (p *pool) close() {
	p.stop()
	<-p.over
	p.mu.Lock()
	kinds := p.kinds
	p.kinds = map[string]*kind{}
	p.size = 0
	p.mu.Unlock()
	for _, k := range kinds {
		for _, b := range k.boxes {
			b.abandon(context.Background())
		}
	}
}

// memoryIsShort says whether the host has little memory left.
func memoryIsShort() bool {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return false
	}
	total, free := meminfo(string(data))
	return total > 0 && free*100 < total*minFreePercent
}

// meminfo reads what there is of memory and what is available, in KiB.
func meminfo(text string) (total, available int64) {
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		var n int64
		if _, err := fmt.Sscanf(s.Text(), "MemTotal: %d kB", &n); err == nil {
			total = n
		}
		if _, err := fmt.Sscanf(s.Text(), "MemAvailable: %d kB", &n); err == nil {
			available = n
		}
	}
	return total, available
}
