package process

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cofferdam/sandbox"
	"cofferdam/sandbox/sandboxtest"
)

// TestAsUserWhatEnds runs the test below as an ordinary user.
func TestAsUserWhatEnds(t *testing.T) {
	if isUser() {
		t.Skip("this is that user")
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.RunAsUser(t, dir, "TestUserMemoryOfWhatEnds")
}

// What has ended in part holds memory too: processes of which the first threads have ended
// are not one because those have none, and one that was killed, or ends by itself, and
// whose tracer does not let it, holds what it had. Who keeps it so is ended.
func TestUserMemoryOfWhatEnds(t *testing.T) {
	needUser(t)
	d := newDriver(t)
	b := newBox(t, d) // of 256 MiB
	const threads = `exec python3 -c '
import ctypes, os, threading, time
def hold(go):
    os.read(go, 1); x = bytearray(60 << 20); time.sleep(%d); os._exit(0)
go, gone = os.pipe()
made = []
for i in range(%d):
    if (pid := os.fork()) == 0:
        os.close(gone); threading.Thread(target=hold, args=[go]).start()
        ctypes.CDLL(None).pthread_exit(None)
    made.append(pid)
for pid in made:
    while "(zombie)" not in open("/proc/%%d/status" %% pid).read(): time.sleep(0.01)
os.close(gone)
print(any(os.wait()[1] for i in range(%d)))'`
	if got, r := sh(t, b, fmt.Sprintf(threads, 1, 3, 3)); got != "False" || r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
		t.Errorf("180 MiB of 256 without first threads: %q, %+v", got, r)
	}
	if got, r := sh(t, b, fmt.Sprintf(threads, 40, 8, 1)); got != "True" || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
		t.Errorf("480 MiB of 256 without first threads: %q, %+v", got, r)
	}
	const traced = `exec python3 -c '
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
trace = lambda what, pid, how: libc.ptrace(what, pid, None, ctypes.c_void_p(how))
for i in range(3):
    if (pid := os.fork()) == 0:
        x = bytearray(70 << 20); trace(0, 0, 0); os.kill(os.getpid(), signal.SIGSTOP); os._exit(0)
    os.waitpid(pid, 0)
    if trace(0x4200, pid, 0x40): print("no tracing") # PTRACE_O_TRACEEXIT
    if "%s" == "killed": os.kill(pid, 9)
    trace(7, pid, 0); os.waitpid(pid, 0)
print("kept", flush=True)
if %d: x = bytearray(60 << 20); time.sleep(40); print("held")'`
	for _, how := range []string{"killed", "ended by itself"} {
		b := newBox(t, d) // what was left runs on in the other

		if got, r := sh(t, b, fmt.Sprintf(traced, how, 0)); got != "kept" || r.Exit != 0 || len(r.Exhausted) > 0 { // the benign twin
			t.Errorf("210 MiB of 256, %s: %q, %+v", how, got, r)
		}
		if got, r := sh(t, b, fmt.Sprintf(traced, how, 1)); !strings.HasPrefix(got, "kept") || strings.Contains(got, "held") || r.Signal != 9 || r.TimedOut || !slices.Contains(r.Exhausted, sandbox.ExhaustedMemory) {
			t.Errorf("270 MiB of 256, %s: %q, %+v", how, got, r)
		}
	}
}
