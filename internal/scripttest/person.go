package scripttest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/pquerna/otp/totp"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// cmdPerson runs cofferdam at a terminal of its own, as a person would, and
// types TEXT once something was printed that asks: a line ending in ": " or "? ".
// \n in it parts what is typed at one prompt from what is typed at the next. The line
// {code} is the code of now of an application that took the last secret for codes
// which was shown, {next} that of the next half minute, and {same} the one typed before.
// What the terminal showed is printed. With ! the command has to fail.
func cmdPerson(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] person TEXT ARGS...")
	}
	person(ts, neg, args[0], args[1:], func(string) {})
}

// person is cmdPerson; look is called with all that was shown whenever that is more.
func person(ts *testscript.TestScript, neg bool, text string, args []string, look func(shown string)) {
	terminal, far, err := openTerminal()
	ts.Check(err)
	defer terminal.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "cofferdam", args...)
	cmd.Path = ts.Getenv("BIN") + "/cofferdam"
	cmd.Err = nil
	cmd.Env, cmd.Dir = append(environ(ts), "TERM=dumb"), ts.Getenv("WORK")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(cmd.Start())
	far.Close()
	shown := converse(terminal, text, ts.MkAbs("application"), look)
	err = cmd.Wait()
	fmt.Fprint(ts.Stdout(), shown)
	if (err != nil) != neg {
		ts.Fatalf("cofferdam %s: %v\n%s", strings.Join(args, " "), err, shown)
	}
}

// converse types each line of text at a prompt of its own and returns all that was shown.
// application is the file in which an application for codes keeps its secret.
func converse(terminal *os.File, text, application string, look func(shown string)) string {
	var shown strings.Builder
	lines := strings.Split(text, `\n`)
	asked := 0 // bytes shown when the last line was typed
	buf := make([]byte, 4096)
	for shown.Len() < 1<<20 {
		n, err := terminal.Read(buf)
		shown.Write(buf[:n])
		look(shown.String())
		if s := shown.String(); len(lines) > 0 && len(s) > asked && (strings.HasSuffix(s, ": ") || strings.HasSuffix(s, "? ")) {
			asked = len(s)
			if _, err := io.WriteString(terminal, typed(lines[0], s, application)+"\n"); err != nil {
				break
			}
			lines = lines[1:]
		}
		if err != nil { // EIO once the far end is closed
			break
		}
	}
	return shown.String()
}

// otpSecret is the secret in an otpauth address.
var otpSecret = regexp.MustCompile(`otpauth://\S*[?&]secret=([A-Z2-7]+)`)

// typed is what a person types for a line.
func typed(line, shown, application string) string {
	last := application + ".last"
	if line == "{same}" {
		code, err := os.ReadFile(last)
		if err != nil {
			return err.Error()
		}
		return string(code)
	}
	at, wanted := map[string]time.Duration{"{code}": 0, "{next}": 30 * time.Second, "{late}": 0}[line]
	if !wanted {
		return line
	}
	if line == "{late}" { // the one after {next}, once that is near enough to count
		time.Sleep(time.Until(time.Now().Truncate(30 * time.Second).Add(30 * time.Second)))
		at = 30 * time.Second
	}
	if m := otpSecret.FindStringSubmatch(shown); m != nil {
		if err := os.WriteFile(application, []byte(m[1]), 0o600); err != nil {
			return err.Error()
		}
	}
	secret, err := os.ReadFile(application)
	if err != nil {
		return err.Error()
	}
	code, err := totp.GenerateCode(string(secret), time.Now().Add(at))
	if err == nil {
		err = os.WriteFile(last, []byte(code), 0o600)
	}
	if err != nil {
		return err.Error()
	}
	return code
}

// openTerminal returns both ends of a new pseudo terminal.
func openTerminal() (near, far *os.File, err error) {
	near, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		near.Close()
		return nil, nil, err
	}
	return near, far, nil
}
