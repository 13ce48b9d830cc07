package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestHostLine talks over lines that end, and over one that is dead and does not
// say so: the newest counts, and no frame is lost or said in two halves.
func TestHostLine(t *testing.T) {
	come := make(chan io.ReadWriteCloser)
	l := newHostLine(func() (io.ReadWriteCloser, error) { return <-come, nil })
	connect := func() net.Conn {
		host, guest := net.Pipe()
		if err := host.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		come <- guest
		return host
	}
	wrote := make(chan error, 1)
	say := func(frame string) {
		go func() {
			n, err := l.Write([]byte(frame))
			if n != len(frame) && err == nil {
				err = io.ErrShortWrite
			}
			wrote <- err
		}()
	}
	hear := func(host net.Conn, want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(host, got); err != nil || string(got) != want {
			t.Fatalf("the host hears %q, %v; want %q", got, err, want)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
	heard := make(chan string)
	go func() {
		b := make([]byte, 16)
		for {
			n, err := l.Read(b)
			if err != nil {
				heard <- err.Error()
				return
			}
			heard <- string(b[:n])
		}
	}()
	tell := func(host net.Conn, word string) {
		t.Helper()
		if _, err := io.WriteString(host, word); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != word {
			t.Fatalf("pid 1 hears %q, want %q", got, word)
		}
	}
	say("before there is a host")
	first := connect()
	hear(first, "before there is a host")
	tell(first, "one")
	first.Close()
	second := connect()
	tell(second, "two")
	third := connect() // the second says nothing of its end
	tell(third, "three")
	say("answer")
	hear(third, "answer")
	third.Close()
	say("between")
	fourth := connect()
	hear(fourth, "between")
	fourth.Close()
}

func TestDiskInOrder(t *testing.T) {
	for _, c := range []struct{ order, serial, want string }{
		{"machine,root,work", "machine", "/dev/vda"}, {"machine,root,work", "work", "/dev/vdc"}, {"machine,root", "work", ""}, {"", "work", ""}, {"a,,b", "b", "/dev/vdc"},
	} {
		if got := diskInOrder(c.order, c.serial); got != c.want {
			t.Errorf("%s in %q is %q, want %q", c.serial, c.order, got, c.want)
		}
	}
}
