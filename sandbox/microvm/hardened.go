package microvm

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cofferdam/sandbox"
)

// hostFindings says what of a host weakens machines of several tenants: memory
// that reaches a disk, or that two machines share, processors that do, and what
// holds a monitor. root is "/", but in tests. Source: R06, and what makers of
// monitors ask of hosts in production.
func hostFindings(root string) []sandbox.Finding {
	h := host(root)
	var list []sandbox.Finding
	add := func(name string, bad bool, good, detail, fix string) {
		f := sandbox.Finding{Name: name, Level: sandbox.OK, Detail: good}
		if bad {
			f = sandbox.Finding{Name: name, Level: sandbox.Fail, Detail: detail, Fix: fix}
		}
		list = append(list, f)
	}
	swaps := strings.Count(h.read("proc/swaps"), "\n")
	add("host-swap", swaps > 0, "none", fmt.Sprintf("%d swap devices: a machine's memory may reach a disk", swaps), "swapoff -a, and remove swap from /etc/fstab")
	add("host-smt", h.read("sys/devices/system/cpu/smt/active") == "1", "off", "two machines may share a core", "boot with nosmt, or write off to /sys/devices/system/cpu/smt/control")
	add("host-ksm", h.read("sys/kernel/mm/ksm/run") == "1", "off", "equal pages of two machines are merged, which tells one about the other", "write 2 to /sys/kernel/mm/ksm/run")
	nx := h.read("sys/module/kvm/parameters/nx_huge_pages")
	add("host-nx-huge-pages", nx == "N" || nx == "never", cmp.Or(nx, "no kvm module"), "a guest can halt the processor", "load kvm with nx_huge_pages=auto")
	weak := h.weaknesses()
	add("host-mitigations", len(weak) > 0, "every known weakness of the processor is mitigated or absent",
		"vulnerable to "+strings.Join(weak, ", "), "boot without mitigations=off and install the processor's microcode")
	add("host-cgroup-v2", h.read("sys/fs/cgroup/cgroup.controllers") == "", "version 2", "control groups are of version 1, which bound no swap and no disk traffic of a monitor",
		"boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 on /sys/fs/cgroup")
	seccomp := h.read("proc/sys/kernel/seccomp/actions_avail")
	add("host-seccomp", !strings.Contains(seccomp, "kill_process"), "kill_process", "the kernel cannot end a process for a system call, by which monitors are held", "use a kernel with CONFIG_SECCOMP_FILTER, 4.14 or newer")
	random := h.read("proc/sys/kernel/randomize_va_space")
	add("host-aslr", random != "2", "full", "addresses in a monitor are not random: randomize_va_space is "+cmp.Or(random, "not there"), "write 2 to /proc/sys/kernel/randomize_va_space")
	taken := h.takenUsers()
	add("host-own-users", taken != "", "no account has a monitor's user", taken, fmt.Sprintf("give that account other ids: %d to %d are for monitors", firstUser, firstUser+lastUser))
	return list
}

// host is where its files are looked for.
type host string

// read returns a small file's text, without the spaces around; "" if there is none.
func (h host) read(path string) string {
	data, err := os.ReadFile(filepath.Join(string(h), path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// weaknesses are those of the processor that the kernel does not mitigate.
func (h host) weaknesses() (weak []string) {
	found, _ := filepath.Glob(filepath.Join(string(h), "sys/devices/system/cpu/vulnerabilities/*")) // the pattern is good
	for _, path := range found {
		data, err := os.ReadFile(path)
		if text := strings.TrimSpace(string(data)); err == nil && strings.HasPrefix(text, "Vulnerable") {
			weak = append(weak, filepath.Base(path))
		}
	}
	return weak
}

// takenUsers names an account that has ids of monitors, or may map them.
func (h host) takenUsers() string {
	for _, f := range []struct {
		path         string
		first, count int // fields; count 0: one id
	}{{"etc/passwd", 2, 0}, {"etc/group", 2, 0}, {"etc/subuid", 1, 2}, {"etc/subgid", 1, 2}} {
		for line := range strings.Lines(h.read(f.path)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) <= max(f.first, f.count) {
				continue
			}
			first, err := strconv.Atoi(fields[f.first])
			count := 1
			if err == nil && f.count > 0 {
				count, err = strconv.Atoi(fields[f.count])
			}
			if err == nil && first <= firstUser+lastUser && first+count > firstUser {
				return fmt.Sprintf("/%s gives %.32q ids from %d on, which monitors have", f.path, fields[0], first)
			}
		}
	}
	return ""
}
