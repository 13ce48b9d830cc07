package wall

import (
	"bytes"
	"reflect"
	"testing"
)

func TestPlanIsReadAsItWasWritten(t *testing.T) {
	want := Plan{
		Hostname: "box", Mounts: []Mount{{Kind: File, To: "/etc/x", Size: 3, Mode: 0o444}, {Kind: Bind, To: "/usr", From: "/usr"}}, TAP: true,
		Write: []string{"/tmp"}, Filter: []Instruction{{0x20, 1, 2, 4}, {6, 0, 0, 0x7fff0000}}, Keep: 1 << 40, Files: 10,
		Command: &Command{Argv: []string{"a\xff"}, Env: []string{}, Dir: "/"}, Data: []byte("\x00\xff\n"),
	}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for n := range len(b) {
		if _, err := Decode(b[:n]); err == nil {
			t.Errorf("a plan cut after %d of %d bytes is taken", n, len(b))
		}
	}
	if _, err := Decode(bytes.Repeat([]byte{0xff}, 64)); err == nil {
		t.Error("noise is taken for a plan")
	}
}
