// Package scripttest runs the scripts of testdata/ against the real programs
// of bin/: a real keeper, a real server with a real engine, real boxes, real
// git. Each script gets a state folder of its own and a server that nobody else
// uses; what it started is ended, by process id, when the script ends.
//
// It never judges by what a program says of itself where an effect can be seen
// from outside: files of the host, refs of a repository, contacts counted by a
// lab server. Its invariant: a script that cannot fail is no test, so attack
// scripts show with "control" that their steps do the damage without a boundary.
package scripttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"cofferdam/identity/identitytest"
)

// Root is the project's folder, seen from this package.
const Root = "../.."

// stateKey finds a script's bench in its environment.
type stateKey struct{}

// bench is what one script has set up.
type bench struct {
	work   string
	state  string // of server and keeper
	server *process
	keeper *process
	flags  []string // of the last serve
	pool   string   // boxes that the keeper makes ahead of each kind; "" is none, for they take memory of all scripts
	labs   map[string]*lab

	provider  *identitytest.Provider
	passkeys  map[string]*identitytest.Authenticator // by whose they are
	authority *authority                             // of the TLS labs; nil until there is one
	disk      bool                                   // the state folder is a disk of its own
}

// Run runs every script of testdata/<dir> with the variables NAME=value, as many
// at a time as go test allows: each has a server of its own, and most of its
// time is spent on starting it.
func Run(t *testing.T, dir string, variables ...string) {
	files, err := filepath.Glob(filepath.Join(Root, "testdata", dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/%s: %d scripts, %v", dir, len(files), err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: as an ordinary user runs what TestScriptsOfUser names")
	}
	runFiles(t, files, variables...)
}

// runFiles runs some scripts, as whoever the test's process is.
func runFiles(t *testing.T, files []string, variables ...string) {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TIER", "gvisor")
			e.Setenv("BOMB", "0.25") // GiB
			e.Vars = append(e.Vars, variables...)
			return setUp(e, bin)
		},
		Cmds: commands(),
	})
}

// programs returns the absolute folder of the built programs.
func programs() (string, error) {
	bin, err := filepath.Abs(filepath.Join(Root, "bin"))
	if err != nil {
		return "", err
	}
	for _, p := range []string{"cofferdam", "cofferdam-wire", "cofferdam-server", "cofferdam-keeper", "cofferdam-runsc", "cofferdam-init", "cofferdam-engine"} {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			return "", fmt.Errorf("run scripts: %s is not built; run make build first", p)
		}
	}
	return bin, nil
}

// setUp gives a script its folders and its environment. Unix sockets bear only
// 107 bytes of path, so the state folder does not lie below the script's own.
func setUp(e *testscript.Env, bin string) error {
	state, err := os.MkdirTemp("", "cfd")
	if err != nil {
		return err
	}
	b := &bench{work: e.WorkDir, state: state, labs: map[string]*lab{}, passkeys: map[string]*identitytest.Authenticator{}}
	e.Values[stateKey{}] = b
	e.Defer(func() {
		b.stopAll()
		if b.disk {
			_ = unix.Unmount(state, unix.MNT_DETACH) // a second try would tell no more
		}
		os.RemoveAll(state)
	})
	home := filepath.Join(e.WorkDir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"PATH":                bin + ":" + os.Getenv("PATH"),
		"BIN":                 bin,
		"HOME":                home,
		"STATE":               state,
		"OUT":                 filepath.Join(e.WorkDir, "out"),
		"TMPDIR":              e.WorkDir,
		"COFFERDAM_SERVER":    "unix:" + filepath.Join(state, "run", "cofferdam.sock"),
		"GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME":     "Person", "GIT_AUTHOR_EMAIL": "person@example.test",
		"GIT_COMMITTER_NAME": "Person", "GIT_COMMITTER_EMAIL": "person@example.test",
	} {
		e.Setenv(name, value)
	}
	for _, keep := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "GOPROXY", "GOFLAGS", "GOTOOLCHAIN"} {
		e.Setenv(keep, os.Getenv(keep))
	}
	if cache, err := os.UserCacheDir(); err == nil { // HOME is the script's own
		e.Setenv("GOCACHE", filepath.Join(cache, "go-build"))
	}
	return os.MkdirAll(filepath.Join(e.WorkDir, "out"), 0o755)
}

// commands are what scripts can say beyond testscript's own.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"serve":    cmdServe,    // serve [flags]: keeper (with --pool $POOL) and server (with boxes of $TIER), ready when it returns
		"boxes":    cmdBoxes,    // boxes N SECONDS: the keeper has that many on this host, by then
		"end":      cmdEnd,      // end server|engine|keeper|LAB...: kill -9, all of them at once
		"repo":     cmdRepo,     // repo NAME DIR: DIR becomes a bare repository, registered as NAME
		"browser":  cmdBrowser,  // browser WHO TEXT ARGS...: person, with a browser that follows addresses
		"provider": cmdProvider, // provider NAME [says CLAIM [VALUE]|truth]: a provider of OpenID Connect
		"unseal":   cmdUnseal,   // unseal: the secret for codes is in the database of a server that is down as it was typed
		"person":   cmdPerson,   // person TEXT ARGS...: cofferdam ARGS at a terminal; TEXT is typed at its prompt
		"signed":   cmdSigned,   // signed SEED [ID AGE QUESTION FILE]: a system outside that brings answers
		"code":     cmdCode,     // code {code}|{next}|{same}: prints what an application for codes shows
		"hook":     cmdHook,     // hook NAME: a receiver of notices of questions
		"notice":   cmdNotice,   // notice NAME STATE FILE...: reads on to one of that state, and says who has signed it
		"forge":    cmdForge,    // forge NAME HOST DIR PASSWORD: a git host that wants a password
		"aged":     cmdAged,     // aged SECRET|questions HOURS: of a server that is down, made so much earlier
		"lab":      cmdLab,      // lab NAME [dns|ADDRESS]: a counting server on loopback
		"stub":     cmdStub,     // stub NAME FILE: a model provider that sends the bytes it is told to
		"labtls":   cmdLabTLS,   // labtls NAME HOST...: one for TLS, which writes down what it is asked
		"rehearse": cmdRehearse, // rehearse FILE|-stop [NAME]: a scripted model on loopback, or its end
		"operator": cmdOperator, // operator FILE: an operator file for this machine's npm registry
		"disk":     cmdDisk,     // disk make|fill|empty|read-only|writable: the state folder's own disk
		"contacts": cmdContacts, // contacts NAME N: that many connections arrived
		"received": cmdReceived, // received LEAST MOST NAME...: so many bytes arrived at labs
		"control":  cmdControl,  // control FILE [ENV=VALUE...]: the steps without a boundary
		"within":   cmdWithin,   // within SECONDS COMMAND...: until it succeeds
		"capture":  cmdCapture,  // capture NAME: the last output becomes a variable
		"holds":    cmdHolds,    // [!] holds FILE TEXT: the file contains the text, byte for byte
		"cut":      cmdCut,      // cut FROM TO first|last|all N: drop events of an export
		"trace":    cmdTrace,    // [!] trace TASK key=value...: an event of the task has all of these
	}
}

func of(ts *testscript.TestScript) *bench { return ts.Value(stateKey{}).(*bench) }

func usage(ts *testscript.TestScript, neg bool, ok bool, text string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// cmdHolds says whether a file contains a text.
func cmdHolds(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] holds FILE TEXT")
	}
	if found := strings.Contains(ts.ReadFile(args[0]), args[1]); found == neg {
		ts.Fatalf("%s contains %q: %v", args[0], args[1], found)
	}
}

// cmdCapture keeps the last output, without its end of line, in a variable.
func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "capture NAME")
	ts.Setenv(args[0], strings.TrimRight(ts.ReadFile("stdout"), "\n"))
}
