package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mindVariable makes this program one that minds signals, or, with "no", does not.
const mindVariable = "COFFERDAM_TEST_MIND"

// TestSentSignals: what a process of a box can send does not end pid 1. The control
// is a program that does not mind them, and a fault of its own ends either.
func TestSentSignals(t *testing.T) {
	if how := os.Getenv(mindVariable); how != "" {
		if how != "no" {
			mindSignals()
		}
		echo(t)
	}
	for n := 1; n <= 31; n++ {
		s := syscall.Signal(n)
		switch s {
		case unix.SIGKILL, unix.SIGSTOP: // the kernel keeps these from pid 1 of a namespace
			continue
		}
		if err := sent(t, "yes", s, "again"); err != nil {
			t.Errorf("%v ends it: %v", s, err)
		}
	}
	for _, s := range []syscall.Signal{unix.SIGILL, unix.SIGSEGV, unix.SIGTRAP, unix.SIGQUIT} {
		if err := sent(t, "no", s, ""); err == nil {
			t.Errorf("control: %v does not end one that does not mind", s)
		}
	}
	if err := sent(t, "yes", unix.SIGWINCH, "fault"); err == nil {
		t.Error("a fault of its own does not end it")
	}
}

// echo says each line again; "fault" makes it one.
func echo(t *testing.T) {
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "fault" {
			var none *int
			*none = 1
		}
		fmt.Println(in.Text())
	}
	os.Exit(0)
}

// sent returns how a program ends that was sent a signal, and then a word, which
// it has to say again; with none it is waited for.
func sent(t *testing.T, how string, s syscall.Signal, word string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSentSignals$")
	cmd.Env = append(os.Environ(), mindVariable+"="+how)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if word == "" {
		_, _ = io.Copy(io.Discard, said) // its end is waited for
		return cmd.Wait()
	}
	fmt.Fprintln(in, word) // one that has ended does not take it
	line, _ := said.ReadString('\n')
	in.Close()
	_, _ = io.Copy(io.Discard, said)
	if err := cmd.Wait(); err != nil || line != word+"\n" {
		return fmt.Errorf("it said %q and ended: %v", line, cmd.ProcessState)
	}
	return nil
}
