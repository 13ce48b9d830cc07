package sandboxtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// survivor leaves its session twice over, ignores what can be ignored, closes
// its descriptors, takes another name and writes its heartbeat: RES-05.
const survivor = `
cat >beat.sh <<'X'
trap '' TERM HUP INT QUIT
exec <&- >&- 2>&-
while :; do date +%s%N >beat.new; mv beat.new beat; sleep 0.05; done
X
cp "$(command -v bash)" ./kworker
setsid sh -c 'setsid ./kworker beat.sh & exit' &
while ! test -e beat; do sleep 0.02; done
echo beating`

// silent fails the test unless the heartbeat in the box has stopped.
func silent(t *testing.T, b *testBox) {
	t.Helper()
	text := "cat beat; sleep 0.5; cat beat; rm beat beat.new 2>/dev/null; sleep 0.3; test ! -e beat && echo silent"
	beats := strings.Fields(b.shell(t, text))
	if len(beats) != 3 || beats[0] != beats[1] || beats[2] != "silent" {
		t.Errorf("it goes on after its end: %q", beats)
	}
}

func testKill(t *testing.T, s *subject) {
	b := s.box(t, nil)
	ctx := testContext(t)
	b.start(t, sandbox.Command{ID: "other", Shell: "sleep 0.2; trap 'echo caught' TERM; i=0; while test ! -e go-on; do sleep 0.05; done; echo unharmed"})
	b.start(t, sandbox.Command{ID: "bad", Shell: survivor + "\nsleep 1000"})
	b.waitFor(t, "bad", "beating\n")
	for range 2 {
		if err := b.Kill(ctx, "bad"); err != nil {
			t.Errorf("kill: %v", err)
		}
	}
	r, _, _ := b.do(t, sandbox.Command{ID: "bad", Shell: survivor + "\nsleep 1000"})
	if r.Signal != 9 || r.Exit != 137 || r.TimedOut || r.Reason == "" {
		t.Errorf("%+v", r)
	}
	silent(t, b)
	b.shell(t, "touch go-on")
	if r, stdout, _ := b.do(t, sandbox.Command{ID: "other", Shell: "x"}); r.Exit != 0 || stdout != "unharmed\n" {
		t.Errorf("another command was hit: %+v, %q", r, stdout)
	}

	// What an ended command left behind dies by its name too.
	b.do(t, sandbox.Command{ID: "left", Shell: survivor})
	if err := b.Kill(ctx, "left"); err != nil {
		t.Errorf("kill what it left: %v", err)
	}
	silent(t, b)
}

func testTimeout(t *testing.T, s *subject) {
	b := s.box(t, nil)
	c := sandbox.Command{Shell: "rm -f beat beat.new" + survivor + "\ntrap '' TERM; while :; do sleep 1; done"}
	var r sandbox.Result
	stdout := ""
	// Where it has said nothing yet the time is longer: an emulated processor and a
	// busy machine take as long for what others do in two seconds.
	for i, timeout := range []time.Duration{2 * time.Second, 20 * time.Second, time.Minute} {
		if s.tier == sandbox.Emulated && i == 0 {
			continue
		}
		c.ID, c.Timeout = execID(fmt.Sprint("slow-", i)), timeout
		if r, stdout, _ = b.do(t, c); stdout != "" {
			break
		}
	}
	if !r.TimedOut || r.Exit != 137 || !slices.Contains(r.Exhausted, sandbox.ExhaustedTime) || r.Reason == "" || stdout != "beating\n" {
		t.Errorf("%+v, %q", r, stdout)
	}
	if took := r.Ended.Sub(r.Started); took < c.Timeout || took > c.Timeout+30*time.Second {
		t.Errorf("it took %s", took)
	}
	silent(t, b)
	if r, _, _ := b.do(t, sandbox.Command{Shell: "exit 5", Timeout: time.Minute}); r.TimedOut || r.Exit != 5 {
		t.Errorf("a command within its time: %+v", r)
	}
}

// waitFor returns once the command has printed text.
func (b *testBox) waitFor(t *testing.T, id string, text string) {
	t.Helper()
	var got strings.Builder
	_, err := b.Attach(testContext(t), execID(id), sandbox.Offsets{}, func(_ sandbox.Stream, _ int64, p []byte) error {
		got.Write(p)
		if strings.Contains(got.String(), text) {
			return errDetach
		}
		return nil
	})
	if err != errDetach {
		t.Fatalf("waiting for %q: %v, got %q", text, err, got.String())
	}
}

// testWalls asks what a tier with a boundary promises.
func testWalls(t *testing.T, s *subject) {
	b := s.box(t, nil)
	if !s.bounded() {
		if got := b.shell(t, "id -u"); got != "0\n" {
			t.Errorf("the box without a boundary runs as user %q", got)
		}
		return
	}
	status := b.shell(t, "id -u; id -g; grep -E '^Cap(Eff|Prm|Inh)' /proc/self/status | tr -d '\\t'")
	if status != "1000\n1000\nCapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\n" {
		t.Errorf("user and capabilities: %q", status)
	}
	for _, text := range []string{
		"touch /etc/x", "touch /usr/x", "touch /x", "echo x >/etc/passwd", "kill -9 1", "cat /proc/1/environ",
		"ls /root", "cat /etc/shadow", "mount -t tmpfs none /mnt", "ls -A /home | grep -v '^agent$'", "ls /run/*.sock /var/run/*.sock",
	} {
		if r, stdout, _ := b.do(t, sandbox.Command{Shell: text}); r.Exit == 0 {
			t.Errorf("%s: it works: %q", text, stdout)
		}
	}
	b.shell(t, "true")
}

func execID(id string) cofferdam.ExecID { return cofferdam.ExecID(id) }
