package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// resting is a driver with one box, b-1, that notes what it is asked and is never
// in the state that somebody waits for.
type resting struct {
	sandbox.Driver
	sandbox.Box
	waits, asked atomic.Int64
}

func (r *resting) Open(_ context.Context, id cofferdam.BoxID) (sandbox.Box, error) {
	if id != "b-1" {
		return nil, &cofferdam.Error{Op: "test.Open", Kind: cofferdam.NotFound}
	}
	return r, nil
}

func (r *resting) List(context.Context) ([]sandbox.Status, error) { return nil, nil }

func (r *resting) Wait(ctx context.Context, _ ...sandbox.BoxState) (sandbox.Change, error) {
	r.waits.Add(1)
	defer r.waits.Add(-1)
	<-ctx.Done()
	return sandbox.Change{}, ctx.Err()
}

func (r *resting) Pause(context.Context) error { r.asked.Add(1); return nil }

func (r *resting) Suspend(context.Context) error { r.asked.Add(1); return nil }

func (r *resting) Resume(context.Context) error { r.asked.Add(1); return nil }

func (r *resting) Snapshot(_ context.Context, t sandbox.Take) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{}, t.Check("test.Snapshot")
}

func (r *resting) SignSnapshot(_ context.Context, id sandbox.SnapshotID, _ []byte) error {
	return sandbox.CheckSnapshotID("test.SignSnapshot", id)
}

func (r *resting) Differences(_ context.Context, c sandbox.Compare) (sandbox.Differences, error) {
	return sandbox.Differences{}, sandbox.CheckSnapshotID("test.Differences", c.From)
}

func (r *resting) RestoreWorkspace(_ context.Context, w sandbox.Restore) error {
	return sandbox.CheckSnapshotID("test.RestoreWorkspace", w.Snapshot)
}

func (r *resting) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	return sandbox.CheckSnapshotID("test.RemoveSnapshot", id)
}

func (r *resting) Offers(context.Context) ([]sandbox.Offer, error) {
	return []sandbox.Offer{sandbox.OfferOf(sandbox.GVisor)}, nil
}

// TestHostileCalls sends what no client sends to the calls that take a box from a
// state to another: each is answered by name or hung up on, a waiting one ends
// with its client, and afterwards no call is under way.
func TestHostileCalls(t *testing.T) {
	d := &resting{}
	s := newServer(map[sandbox.Tier]sandbox.Driver{sandbox.None: d}, Options{})
	path, _ := runOn(t, s)
	long := strings.Repeat("x", 1<<20)
	const hangsUp = ""
	token := hostileCall(t, path, []byte(`{"op":"claim"}`), nil).Token
	if token == "" {
		t.Fatal("control: no claim")
	}
	claimed := func(request string) []byte {
		return []byte(strings.Replace(request, `{"op"`, `{"token":"`+token+`","op"`, 1))
	}
	for _, c := range []struct{ name, request, want string }{
		{"pause of nothing", `{"op":"pause"}`, "not found"},
		{"suspend of a path", `{"op":"suspend","box":"../../b-1"}`, "not found"},
		{"resume of a long name", `{"op":"resume","box":"` + long + `"}`, "not found"},
		{"box that is a number", `{"op":"pause","box":1}`, "invalid"},
		{"box that is a list", `{"op":"pause","box":["b-1"]}`, "invalid"},
		{"snapshot without an id", `{"op":"snapshot","box":"b-1"}`, "invalid"},
		{"snapshot with a path", `{"op":"snapshot","box":"b-1","take":{"id":"../../../etc/cron.d/x"}}`, "invalid"},
		{"snapshot with a zero byte", `{"op":"snapshot","box":"b-1","take":{"id":"s-\u0000"}}`, "invalid"},
		{"snapshot with a long id", `{"op":"snapshot","box":"b-1","take":{"id":"` + long + `"}}`, "invalid"},
		{"snapshot of another type", `{"op":"snapshot","box":"b-1","take":"s-1"}`, "invalid"},
		{"snapshot with a comment of two lines", `{"op":"snapshot","box":"b-1","take":{"id":"s-00000000000000000000000000000000","comment":"a\nb"}}`, "invalid"},
		{"signing a path", `{"op":"sign","snapshot":"../boxes","note":"QQ=="}`, "invalid"},
		{"differences of nothing", `{"op":"differences"}`, "invalid"},
		{"differences of a path", `{"op":"differences","compare":{"from":"../boxes"}}`, "invalid"},
		{"putting back nothing", `{"op":"restore"}`, "invalid"},
		{"putting back a path", `{"op":"restore","restore":{"snapshot":"../boxes"}}`, "invalid"},
		{"forgetting a path", `{"op":"forget","snapshot":"../boxes"}`, "invalid"},
		{"forgetting nothing", `{"op":"forget"}`, "invalid"},
		{"waiting for a number", `{"op":"wait","box":"b-1","states":[1]}`, "invalid"},
		{"waiting for an object", `{"op":"wait","box":"b-1","states":{"a":"b"}}`, "invalid"},
		{"waiting for nobody", `{"op":"wait","box":"b-2","states":["ready"]}`, "not found"},
		{"upper case", `{"op":"PAUSE","box":"b-1"}`, "invalid"},
		{"two objects", `{"op":"pause","box":"b-2"}{"op":"pause","box":"b-1"}`, "invalid"},
		{"deep nesting", `{"op":"wait","box":"b-1","states":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, "invalid"},
		{"no JSON", `\x00\xff`, "invalid"},
		{"larger than a frame", strings.Repeat(" ", maxJSON+1), hangsUp},
	} {
		got := hostileCall(t, path, claimed(c.request), nil)
		if c.want == hangsUp {
			continue
		}
		if got.Error == nil || cofferdam.ParseKind(got.Error.Kind) != cofferdam.ParseKind(c.want) {
			t.Errorf("%s: answered %+v, want %s", c.name, got.Error, c.want)
		}
	}
	for _, op := range []string{"pause", "suspend", "resume", "snapshot", "forget", "sign", "differences", "restore"} { // who has no claim
		got := hostileCall(t, path, []byte(`{"op":"`+op+`","box":"b-1","snapshot":"s-1"}`), nil)
		if got.Error == nil || cofferdam.ParseKind(got.Error.Kind) != cofferdam.Conflict {
			t.Errorf("%s without a claim: answered %+v", op, got.Error)
		}
	}
	if n := d.asked.Load(); n > 0 {
		t.Errorf("the box was asked %d times", n)
	}
	if got := hostileCall(t, path, claimed(`{"op":"pause","box":"b-1"}`), nil); got.Error != nil || d.asked.Load() != 1 {
		t.Errorf("control: a good pause: %+v", got.Error)
	}
	// A client that goes on talking has its answer, and the rest of it none.
	junk := append(frameHeader(kindAck, 0), frameHeader(kindData, dataHeader+4)...)
	junk = append(junk, make([]byte, dataHeader+4)...)
	junk = append(junk, 0xff, 0xff, 0xff, 0xff, 9)
	if got := hostileCall(t, path, []byte(`{"op":"offers"}`), junk); got.Error != nil || len(got.Offers) != 1 {
		t.Errorf("offers with more behind: %+v", got)
	}
	for range 50 { // and those who wait take their place with them
		conn := rawDial(t, path)
		send(t, conn, []byte(`{"op":"wait","box":"b-1","states":["deleted","`+strings.Repeat("y", 1<<16)+`"]}`), nil)
		for d.waits.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		conn.Close()
	}
	ctx := testContext(t)
	for d.waits.Load() > 0 || len(s.slots) > 0 {
		if time.Sleep(time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%d wait and %d calls are under way", d.waits.Load(), len(s.slots))
		}
	}
	dial(t, path)
}

// send writes a hello, a request and whatever follows.
func send(t *testing.T, w io.Writer, request, behind []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := writeJSON(&b, hello{Protocol: protocolName, Version: Version}); err != nil {
		t.Fatal(err)
	}
	b.Write(frameHeader(kindJSON, len(request)))
	b.Write(request)
	b.Write(behind)
	_, _ = w.Write(b.Bytes()) // it may be hung up on
}

// hostileCall makes one call and returns what is answered.
func hostileCall(t *testing.T, path string, request, behind []byte) (re reply) {
	t.Helper()
	conn := rawDial(t, path)
	defer conn.Close()
	send(t, conn, request, behind)
	f, err := readFrame(conn)
	var h hello
	if err == nil {
		err = f.json(&h)
	}
	if err == nil {
		f, err = readFrame(conn)
	}
	if err != nil {
		return reply{Error: &wireError{Kind: "unavailable", Reason: err.Error()}}
	}
	if err := json.Unmarshal(f.payload, &re); err != nil {
		t.Fatal(err)
	}
	return re
}
