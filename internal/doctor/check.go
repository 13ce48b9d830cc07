package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam/internal/userns"
	"cofferdam/sandbox"
)

// Bounds of the checks. Source: docs/SPECIFICATION.md, "Doctor".
const (
	lowDisk  = 2 << 30 // bytes: one box's default workspace would not fit twice
	noDisk   = 200 << 20
	lowFiles = 10_000
)

// programs are the sisters that the server starts.
func programs() []string {
	return []string{"cofferdam-server", "cofferdam-keeper", "cofferdam-runsc", "cofferdam-init", "cofferdam-engine"}
}

// wire is what cofferdam run needs besides.
const wire = "cofferdam-wire"

// checkUser says as whom the server would run. What an ordinary user lacks is
// found by the tier's own checks.
func checkUser(_ context.Context, o Options) []sandbox.Finding {
	switch uid := o.Host.UID(); {
	case uid != 0:
		return one("user", sandbox.OK, "", "uid %d: server and boxes run in a user namespace of its own", uid)
	case userns.Inside():
		return one("user", sandbox.OK, "", "an ordinary user, in a user namespace of its own")
	}
	return one("user", sandbox.OK, "", "root")
}

// checkTUN says of an ordinary user what cofferdam run needs of this host besides
// what its own refusals name. The keeper's checks look at the device as well, but
// not before the user has a range of ids, which a run does without.
func checkTUN(_ context.Context, o Options) []sandbox.Finding {
	if o.Host.UID() == 0 || runtime.GOOS != "linux" {
		return nil
	}
	const fix = "as root: modprobe tun, then chmod 0666 /dev/net/tun, as udev does; in a container, pass --device /dev/net/tun"
	if err := o.Host.TUN(); err != nil {
		return one("tun-device", sandbox.Warn, fix, "cofferdam run is refused to this user, and boxes of a server too: %v", err)
	}
	return one("tun-device", sandbox.OK, "", "/dev/net/tun opens")
}

func checkPrograms(_ context.Context, o Options) []sandbox.Finding {
	var missing []string
	for _, p := range programs() {
		if !runnable(o, p) {
			missing = append(missing, p)
		}
	}
	const fix = "make build puts them all into bin/; keep them together, or name their folder with --programs"
	if len(missing) > 0 {
		return one("programs", sandbox.Fail, fix, "%s: no runnable %s", o.Config.Programs, strings.Join(missing, ", "))
	}
	if !runnable(o, wire) { // a server does without
		return one("programs", sandbox.Warn, fix, "%s: no runnable %s, and cofferdam run is refused", o.Config.Programs, wire)
	}
	return one("programs", sandbox.OK, "", "all are in %s", o.Config.Programs)
}

func runnable(o Options, program string) bool {
	info, err := os.Stat(filepath.Join(o.Config.Programs, program))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// checkTier is what the tier of this server's boxes needs.
func (r *Report) checkTier(ctx context.Context, o Options) []sandbox.Finding {
	tiers, broken := survey(ctx, o)
	if broken != nil {
		return broken
	}
	r.Tiers = tiers
	for _, s := range tiers {
		if s.Tier == o.Tier() {
			return s.Findings
		}
	}
	return one("keeper", sandbox.Fail, "install all programs of one release together: make build", "it knows no tier %s", o.Tier())
}

// survey runs the drivers' own checks, each tier's.
func survey(ctx context.Context, o Options) (tiers []sandbox.Survey, broken []sandbox.Finding) {
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	args := []string{"--check", "--state", o.Config.KeeperState}
	if o.Own {
		args = append(args, "--tier", string(o.Tier()))
	}
	out, runErr := o.Host.Run(ctx, filepath.Join(o.Config.Programs, "cofferdam-keeper"), args...)
	tiers, err := parseSurvey(out)
	if err != nil {
		if runErr != nil {
			err = runErr
		}
		return nil, one("keeper", sandbox.Fail, "run cofferdam-keeper --check by hand and see what it says", "its checks could not be made: %v", err)
	}
	return tiers, nil
}

// parseSurvey reads what cofferdam-keeper --check prints.
func parseSurvey(out []byte) ([]sandbox.Survey, error) {
	var all struct {
		Schema string           `json:"schema"`
		Tiers  []sandbox.Survey `json:"tiers"`
	}
	if err := json.Unmarshal(out, &all); err != nil || all.Schema != "cofferdam/tiers/v1" {
		return nil, errors.New("it printed no list of tiers")
	}
	if len(all.Tiers) == 0 {
		return nil, errors.New("it found nothing at all")
	}
	for i, s := range all.Tiers {
		for _, f := range s.Findings {
			if f.Name == "" || (f.Level != sandbox.OK && f.Level != sandbox.Warn && f.Level != sandbox.Fail) {
				return nil, fmt.Errorf("finding %q has the level %q", f.Name, f.Level)
			}
		}
		// Whether a tier is usable follows from what was found, whatever it says.
		all.Tiers[i] = sandbox.NewSurvey(s.Offer, s.Findings)
	}
	return all.Tiers, nil
}

func checkTools(_ context.Context, o Options) []sandbox.Finding {
	var missing []string
	for _, tool := range []string{"git"} {
		if _, err := o.Host.Find(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return one("tools", sandbox.Fail, "apt install "+strings.Join(missing, " "), "not found: %s", strings.Join(missing, ", "))
	}
	return one("tools", sandbox.OK, "", "git is there")
}

// checkState looks at the state folder, or at the nearest folder above it that
// exists, for it is made at the first start.
func checkState(_ context.Context, o Options) []sandbox.Finding {
	dir := o.Config.State
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for errors.Is(err, fs.ErrNotExist) && dir != "/" {
			dir = filepath.Dir(dir)
			info, err = os.Stat(dir)
		}
	case err == nil && info.IsDir() && info.Mode().Perm()&0o007 != 0:
		return one("state", sandbox.Fail, "chmod 700 "+dir, "%s is open to every user", dir)
	}
	if err != nil {
		return one("state", sandbox.Fail, "make it reachable for the server, or choose another with --state", "%s: %v", dir, err)
	}
	if !info.IsDir() {
		return one("state", sandbox.Fail, "move it away, or choose another with --state", "%s is not a folder", dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return one("state", sandbox.Fail, "make it writable for the server (a read-only mount?), or choose another with --state", "%s: %v", dir, err)
	}
	return append(one("state", sandbox.OK, "", "%s can be written", dir), checkDisk(o, dir)...)
}

func checkDisk(o Options, dir string) []sandbox.Finding {
	free, files, err := o.Host.Free(dir)
	const fix = "free some space, or choose another disk with --state"
	switch {
	case err != nil:
		return one("disk", sandbox.Warn, fix, "%s: %v", dir, err)
	case free < noDisk:
		return one("disk", sandbox.Fail, fix, "%d MiB free in %s", free>>20, dir)
	case free < lowDisk:
		return one("disk", sandbox.Warn, fix, "%d MiB free in %s; a box may use 4 GiB", free>>20, dir)
	case files > 0 && files < lowFiles:
		return one("disk", sandbox.Warn, fix, "%d files can still be made in %s", files, dir)
	}
	return one("disk", sandbox.OK, "", "%d GiB free in %s", free>>30, dir)
}

// checkSocket asks whether another server answers already.
func checkSocket(ctx context.Context, o Options) []sandbox.Finding {
	if o.Serving {
		return one("socket", sandbox.OK, "", "this server serves %s", o.Config.Socket)
	}
	if !serves(ctx, o) {
		start := "sudo cofferdam serve"
		if o.Host.UID() != 0 {
			start = "cofferdam serve, as this user"
		}
		return one("server", sandbox.Warn, start+"; if one has a state folder of its own, give doctor the same --state", "no server at unix:%s", o.Config.Socket)
	}
	return one("server", sandbox.OK, "", "answers at unix:%s", o.Config.Socket)
}

// serves says whether a server answers.
func serves(ctx context.Context, o Options) bool {
	if o.Serving {
		return true
	}
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "unix", o.Config.Socket)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func checkListen(ctx context.Context, o Options) []sandbox.Finding {
	addr := o.Config.Listen
	switch {
	case addr == "":
		return one("port", sandbox.OK, "", "off")
	case o.Serving:
		return one("port", sandbox.OK, "", "this server serves %s", addr)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return one("port", sandbox.Warn, "choose another with --listen, or --listen off", "%s is taken; by a running server, unless none answers above", addr)
	}
	l.Close()
	return one("port", sandbox.OK, "", "%s is free", addr)
}

// checkClock refuses a clock that is plainly wrong: certificates and signed
// times would mean nothing.
func checkClock(_ context.Context, o Options) []sandbox.Finding {
	now := o.Host.Now()
	earliest := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // older than this program
	if now.Before(earliest) || now.Year() > 2100 {
		return one("clock", sandbox.Fail, "set the clock: timedatectl set-ntp true", "it says %s", now.UTC().Format(time.RFC3339))
	}
	return one("clock", sandbox.OK, "", "%s", now.UTC().Format(time.RFC3339))
}
