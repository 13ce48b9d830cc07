package wall

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDeviceWithoutIPv6: the device of a box has no IPv6 from its first moment,
// and loopback keeps it.
func TestDeviceWithoutIPv6(t *testing.T) {
	missing := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			missing <- err
			return
		}
		tap, err := OpenTAP(false)
		missing <- err
		if err != nil {
			return
		}
		defer unix.Close(tap)
		for device, want := range map[string]string{Device: "1\n", "lo": "0\n"} {
			got, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + device + "/disable_ipv6")
			if err != nil || string(got) != want {
				t.Errorf("%s: disabled is %q, %v, want %q", device, got, err, want)
			}
		}
		close(missing)
	}()
	if err := <-missing; err != nil {
		t.Skip("not run here: " + err.Error())
	}
	<-missing
}
