package microvm

import (
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/microvm/vmm"
)

// link joins a guest.Host to the line of whatever machine there is: the
// host's end stays when a box is suspended and goes on in another machine. At
// that moment the talk is quiet, so that nothing is in between.
type link struct {
	end *os.File // ours, opposite of the host's

	mu      sync.Mutex
	machine *os.File      // the monitor's socket; nil while there is none; guarded by mu
	came    chan struct{} // closed when a machine comes; guarded by mu
	parting bool          // the machine is about to go, and another will come; guarded by mu
}

// newLink returns a link, and the two descriptors for a guest.Host.
func newLink() (l *link, w, r *os.File, err error) {
	ours, host, err := vmm.SocketPair()
	if err != nil {
		return nil, nil, nil, err
	}
	defer host.Close()
	l = &link{end: ours, came: make(chan struct{})}
	if w, err = vmm.Duplicate(host); err == nil {
		r, err = vmm.Duplicate(host)
	}
	if err != nil {
		ours.Close()
		if w != nil {
			w.Close()
		}
		return nil, nil, nil, err
	}
	go l.toMachine()
	return l, w, r, nil
}

// attach serves the machine behind end; one before it is let go. What it returns
// is closed once the line has ended.
func (l *link) attach(end *os.File) (ended <-chan struct{}) {
	l.mu.Lock()
	if l.machine == nil {
		close(l.came)
	} else {
		l.machine.Close()
	}
	l.machine = end
	l.mu.Unlock()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(l.end, end) // its end is the machine's end
		l.mu.Lock()
		defer l.mu.Unlock()
		end.Close()
		if l.machine == end {
			l.machine, l.came = nil, make(chan struct{})
			if !l.parting {
				l.end.Close() // the host sees the end of its box
			}
		}
	}()
	return over
}

// part says that the line may end and another comes, until keep is called. The
// talk is quiet.
func (l *link) part() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parting = true
}

// keep says that the line there is stays: its end is the machine's.
func (l *link) keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parting = false; l.machine == nil {
		l.end.Close()
	}
}

// toMachine carries what the host says. While there is no machine it says nothing.
func (l *link) toMachine() {
	b := make([]byte, 64<<10)
	for {
		n, err := l.end.Read(b)
		if err != nil {
			l.mu.Lock()
			if l.machine != nil {
				_ = unix.Shutdown(int(l.machine.Fd()), unix.SHUT_WR) // pid 1 sees that the host is away
			}
			l.mu.Unlock()
			return
		}
		l.mu.Lock()
		to, came := l.machine, l.came
		l.mu.Unlock()
		if to == nil {
			<-came
			l.mu.Lock()
			to = l.machine
			l.mu.Unlock()
		}
		if to != nil {
			_, _ = to.Write(b[:n]) // if it ended, its reader says so
		}
	}
}

// close ends the link with nobody at its other end.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end.Close()
	if l.machine == nil {
		close(l.came)
	}
}

// console keeps the last of what a kernel prints; a box may print for ever.
type console struct {
	mu   sync.Mutex
	text []byte
	seen chan struct{} // closed once bootedWord was printed
	once sync.Once
	over chan struct{} // closed once all is read that the machine printed; set by follow
}

const consoleSize = 16 << 10

// bootedWord is what cofferdam-init prints first on a machine.
const bootedWord = "cofferdam-init: the machine runs"

func newConsole() *console { return &console{seen: make(chan struct{})} }

// follow reads what a machine prints until that ends; one machine after the other.
func (c *console) follow(f *os.File) {
	over := make(chan struct{})
	c.over = over
	go func() { c.read(f); close(over) }()
}

func (c *console) read(f *os.File) {
	defer f.Close()
	b := make([]byte, 4<<10)
	for {
		n, err := f.Read(b)
		c.mu.Lock()
		c.text = append(c.text, b[:n]...)
		if over := len(c.text) - consoleSize; over > 0 {
			c.text = append(c.text[:0], c.text[over:]...)
		}
		booted := strings.Contains(string(c.text), bootedWord)
		c.mu.Unlock()
		if booted {
			c.once.Do(func() { close(c.seen) })
		}
		if err != nil {
			return
		}
	}
}

// last is the end of what was printed, on one line.
func (c *console) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(c.text), "?")), " ")
	return text[max(0, len(text)-600):]
}
