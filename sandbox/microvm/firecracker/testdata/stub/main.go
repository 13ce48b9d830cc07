// Command stub stands for two programs in the tests of its room: named jailer, it
// does what docs/jailer.md of Firecracker says that one does, as far as the driver
// needs it; named firecracker, it speaks the API by its description, and opens what
// it is told of as that one would. What it is to do wrong, its kernel says.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/microvm/vmmtest"
)

func main() {
	name := filepath.Base(os.Args[0])
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(strings.ToUpper(name[:1]) + name[1:] + " v1.16.1")
		return
	}
	do := firecracker
	if name == "jailer" {
		do = jailer
	}
	if err := do(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, name+": "+err.Error())
		os.Exit(1)
	}
}

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func jailer(args []string) error {
	set := flag.NewFlagSet("jailer", flag.ContinueOnError)
	id, exe, base, netns := set.String("id", "", ""), set.String("exec-file", "", ""), set.String("chroot-base-dir", "", ""), set.String("netns", "", "")
	uid, gid := set.Int("uid", -1, ""), set.Int("gid", -1, "")
	pids, version, parent := set.Bool("new-pid-ns", false, ""), set.String("cgroup-version", "1", ""), set.String("parent-cgroup", "", "")
	var groups, limits list
	set.Var(&groups, "cgroup", "")
	set.Var(&limits, "resource-limit", "")
	if err := set.Parse(args); err != nil {
		return err
	}
	if !*pids || *version != "1" && *version != "2" || *parent == "" || len(*id) > 64 {
		return fmt.Errorf("flags %q", args)
	}
	runtime.LockOSThread()
	ns, err := os.Open(*netns)
	if err != nil {
		return err
	}
	root := filepath.Join(*base, filepath.Base(*exe), *id, "root")
	inside := "/" + filepath.Base(*exe)
	if err := copyFile(*exe, root+inside); err != nil {
		return err
	}
	if err := errors.Join(unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), limit(limits)); err != nil {
		return err
	}
	for _, dir := range []string{"/", "/dev", "/dev/net", "/run"} {
		if err := errors.Join(os.MkdirAll(root+dir, 0o700), os.Chown(root+dir, *uid, *gid)); err != nil {
			return err
		}
	}
	tun := root + "/dev/net/tun"
	if err := errors.Join(unix.Mknod(tun, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 200))), os.Chown(tun, *uid, *gid)); err != nil {
		return err
	}
	pid, err := syscall.ForkExec(inside, append([]string{inside, "--id=" + *id}, set.Args()...), &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{
			Chroot: root, Cloneflags: syscall.CLONE_NEWPID, Credential: &syscall.Credential{Uid: uint32(*uid), Gid: uint32(*gid)},
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(root+inside+".pid", []byte(strconv.Itoa(pid)), 0o600)
}

func limit(limits list) error {
	kinds := map[string]int{"fsize": unix.RLIMIT_FSIZE, "no-file": unix.RLIMIT_NOFILE}
	for _, l := range limits {
		name, value, _ := strings.Cut(l, "=")
		kind, ok := kinds[name]
		n, err := strconv.ParseUint(value, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("limit %s: %w", l, err)
		}
		if err := unix.Setrlimit(kind, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// orders are in the file that should be a kernel.
type orders struct {
	Description vmmtest.Description `json:"description"`
	Faults      map[string]string   `json:"faults"`
	Unfiltered  bool                `json:"unfiltered"` // it sets no filter of system calls
	Exit        bool                `json:"exit"`       // it ends before it serves
	Log         string              `json:"log"`
}

func firecracker(args []string) error {
	if len(args) != 3 || args[1] != "--api-sock" {
		return fmt.Errorf("arguments %q", args)
	}
	data, err := os.ReadFile("/vm/kernel")
	if err != nil {
		return err
	}
	var o orders
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	if o.Exit {
		return errors.New("it ends")
	}
	l, err := net.Listen("unix", args[2])
	if err != nil {
		return err
	}
	states := new(vmmtest.Firecracker)
	stub := &vmmtest.Stub{Description: o.Description, Faults: o.Faults, Fail: vmmtest.Fault}
	stub.Act = func(method, path string, body map[string]any) (any, error) {
		answer, err := states.Act(method, path, body)
		if err == nil {
			err = effect(o, method+" "+path, body)
		}
		return answer, err
	}
	return http.Serve(l, stub)
}

// effect opens and makes what a call names.
func effect(o orders, call string, body map[string]any) error {
	text := func(name string) string { s, _ := body[name].(string); return s }
	switch {
	case call == "PUT /logger":
		f, err := os.OpenFile(text("log_path"), os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		_, err = io.WriteString(f, o.Log)
		return err
	case call == "PUT /boot-source":
		return errors.Join(vmmtest.Readable(text("kernel_image_path")), vmmtest.Readable(text("initrd_path")))
	case strings.HasPrefix(call, "PUT /drives/"):
		if body["is_read_only"] == true {
			return vmmtest.Readable(text("path_on_host"))
		}
		f, err := os.OpenFile(text("path_on_host"), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("written by the guest")
		return err
	case strings.HasPrefix(call, "PUT /network-interfaces/"):
		return vmmtest.TakeTAP(text("host_dev_name"))
	case call == "PUT /vsock":
		return vmmtest.Listen(text("uds_path"))
	case call == "PUT /actions":
		fmt.Println("the guest's kernel prints")
		return o.run()
	case call == "PUT /snapshot/create":
		return errors.Join(vmmtest.Write(text("snapshot_path"), "state"), vmmtest.Write(text("mem_file_path"), "memory"))
	case call == "PUT /snapshot/load":
		backend, _ := body["mem_backend"].(map[string]any)
		memory, _ := backend["backend_path"].(string)
		return errors.Join(vmmtest.Holds(text("snapshot_path"), "state"), vmmtest.Holds(memory, "memory"), o.run())
	}
	return nil
}

// run sets a filter that allows everything, in every thread.
func (o orders) run() error {
	if o.Unfiltered {
		return nil
	}
	return vmmtest.Filter()
}
