package keeper

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// noted is a driver that notes which server makes a box, when that begins and when
// it ends.
type noted struct {
	*sandboxtest.Fake
	mu  sync.Mutex
	log []int // numbers of servers; guarded by mu
}

func (n *noted) note(server string) {
	number, _ := strconv.Atoi(server) // a box of the test itself is of server 0
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, number)
}

// Create implements sandbox.Driver.
func (n *noted) Create(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	n.note(s.Hostname)
	defer n.note(s.Hostname)
	return n.Fake.Create(ctx, s)
}

// workAsServer is another process: a server that claims the keeper and works with
// boxes until another has claimed it.
func workAsServer() int {
	ctx, name := context.Background(), os.Getenv("KEEPER_TEST_NAME")
	c, err := Dial(ctx, os.Getenv("KEEPER_TEST_SOCKET"))
	if err == nil {
		fmt.Println("claimed")
	}
	for i := 0; err == nil; i++ {
		// A call that is cut because it takes too long is not told why; the next is.
		if err = oneBox(ctx, c, name, i%2 == 1); cofferdam.KindOf(err) == cofferdam.Unavailable {
			err = nil
		} else if err == nil {
			fmt.Println("works")
		}
	}
	if cofferdam.KindOf(err) == cofferdam.Conflict {
		fmt.Println("fenced")
		return 0
	}
	fmt.Println("broken:", err)
	return 1
}

// oneBox makes a box, runs a command in it, and may end it.
func oneBox(ctx context.Context, c *Client, name string, end bool) error {
	b, err := c.Create(ctx, sandbox.Spec{ID: cofferdam.BoxID(cofferdam.NewID("b")), Tier: sandbox.None, Image: "host", Hostname: name})
	if err != nil {
		return err
	}
	var out strings.Builder
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "one", Shell: "echo " + name}, &out, nil)
	if err == nil && (r.Exit != 0 || out.String() != name+"\n") {
		err = fmt.Errorf("%+v, %q", r, out.String())
	}
	if err != nil || !end {
		return err
	}
	return b.Destroy(ctx)
}

// other is such a process.
type other struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startServer(t *testing.T, path string, number int) *other {
	t.Helper()
	o := &other{t: t, name: strconv.Itoa(number), cmd: exec.Command(os.Args[0])}
	o.cmd.Env = append(os.Environ(), "KEEPER_TEST_CLIENT=server", "KEEPER_TEST_SOCKET="+path, "KEEPER_TEST_NAME="+o.name)
	o.cmd.Stderr = os.Stderr
	out, err := o.cmd.StdoutPipe()
	if err == nil {
		err = o.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	o.lines = bufio.NewScanner(out)
	return o
}

// says waits until the process has said a word.
func (o *other) says(word string) {
	o.t.Helper()
	for o.lines.Scan() {
		if o.lines.Text() == word {
			return
		}
		if strings.HasPrefix(o.lines.Text(), "broken") {
			o.t.Errorf("server %s: %s", o.name, o.lines.Text())
		}
	}
	o.t.Fatalf("server %s ended and has not said that it %s", o.name, word)
}

// kill is kill -9; what the process said until then does not count.
func (o *other) kill() {
	o.t.Helper()
	_ = o.cmd.Process.Kill() // it may have ended
	for o.lines.Scan() {     // Wait closes the pipe
		if strings.HasPrefix(o.lines.Text(), "broken") {
			o.t.Errorf("server %s: %s", o.name, o.lines.Text())
		}
	}
	_ = o.cmd.Wait() // killed, or fenced already
}

// fenced waits for the end of a process that has lost the keeper to another.
func (o *other) fenced() {
	o.t.Helper()
	o.says("fenced")
	if err := o.cmd.Wait(); err != nil {
		o.t.Errorf("server %s: %v", o.name, err)
	}
}

// TestServersThatAreKilled lets servers, real processes, take one keeper from each
// other, and kills one or the other in the middle of what it does. Never does one
// that lost the keeper make a box any more, none waits for what a killed one had
// under way, and every box that was made is whole.
func TestServersThatAreKilled(t *testing.T) {
	driver := &noted{Fake: fake(t)}
	s := newServer(map[sandbox.Tier]sandbox.Driver{sandbox.None: driver}, Options{State: t.TempDir()})
	path, _ := runOn(t, s)
	ctx := t.Context()
	now := startServer(t, path, 1)
	now.says("works")
	worked := 1 // each leaves its first box
	for number := 2; number <= 13; number++ {
		var next *other
		switch number % 4 {
		case 0: // both live, and the first finds out
			next = startServer(t, path, number)
			next.says("works")
			now.fenced()
		case 1: // the first is killed, then the second starts
			now.kill()
			next = startServer(t, path, number)
			next.says("works")
		case 2: // the first is killed while the second takes the keeper
			next = startServer(t, path, number)
			now.kill()
			next.says("works")
		case 3: // the second is killed as soon as it has the keeper
			next = startServer(t, path, number)
			next.says("claimed")
			next.kill()
			now.fenced()
			number++
			next = startServer(t, path, number)
			next.says("works")
		}
		now = next
		worked++
	}
	now.kill()

	c, err := Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	boxes, err := c.List(ctx)
	if err != nil || len(boxes) < worked {
		t.Fatalf("%d boxes of %d servers, %v", len(boxes), worked, err)
	}
	for _, st := range boxes {
		b, err := c.Open(ctx, st.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := sandbox.Run(ctx, b, sandbox.Command{ID: "last", Shell: "exit 3"}, nil, nil); err != nil || r.Exit != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		if err := b.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}
	highest := 0
	for i, number := range driver.log {
		if number < highest {
			t.Errorf("%d: server %d makes a box when server %d has the keeper: %v", i, number, highest, driver.log)
			break
		}
		highest = number
	}
	for len(s.slots) > 0 { // calls of those that were killed end
		if ctx.Err() != nil {
			t.Fatalf("%d calls are under way", len(s.slots))
		}
		time.Sleep(time.Millisecond)
	}
}
