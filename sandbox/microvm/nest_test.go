package microvm

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"cofferdam"
	"cofferdam/sandbox"
)

// nested is a container that an ordinary user starts in a box, with an engine's
// usual runtime: a process, mount, host name and user namespace of its own.
const nested = `set -e
mkdir -p /tmp/c/rootfs/bin && cd /tmp/c
cp "$(command -v busybox)" rootfs/bin/sh
crun spec --rootless
python3 - <<'X'
import json
c = json.load(open("config.json"))
c["process"]["terminal"] = False
c["process"]["args"] = ["/bin/sh", "-c", "echo inside as $(id -u), process $$, on $(hostname); test ! -e /work && echo alone"]
c["hostname"] = "inner"
json.dump(c, open("config.json", "w"))
X
crun --root /tmp/crun --cgroup-manager=disabled run inner`

// TestNestedContainers runs a container in a machine: with a kernel of its own
// a box can let an ordinary user have namespaces.
func TestNestedContainers(t *testing.T) {
	if os.Getenv("COFFERDAM_SOAK") == "" {
		t.Skip("not run here: it copies the host's programs; COFFERDAM_SOAK=1 runs it")
	}
	for _, name := range []string{"crun", "busybox", "python3"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs " + name)
		}
	}
	b := newBox(t, newDriver(t), func(s *sandbox.Spec) { s.Image, s.Limits = sandbox.HostImage, cofferdam.Limits{} })
	out, r := sh(t, b, nested)
	if r.Exit != 0 || !strings.Contains(out, "inside as 0, process 1, on inner\nalone") {
		t.Errorf("%q, %+v", out, r)
	}
}
