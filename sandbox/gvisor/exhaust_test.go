package gvisor

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/sandbox"
)

// shAndKill is sh, and ends what the command left: a fork bomb goes on after
// the process that lit it.
func shAndKill(t *testing.T, b sandbox.Box, text string) (string, sandbox.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	id := cofferdam.ExecID(cofferdam.NewID("e"))
	var out, errs bytes.Buffer
	r, err := sandbox.Run(ctx, b, sandbox.Command{ID: id, Shell: text, Timeout: time.Minute}, &out, &errs)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := b.Kill(ctx, id); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return out.String() + errs.String(), r
}

// freeing stands for a command that may or may not meet a limit: it begins while
// one is met and frees it.
const freeing sandbox.Exhaustion = "any"

// TestExhaustionIsNamed runs one hog after the other in the same box: each
// result names its limit and no other, and the box goes on.
func TestExhaustionIsNamed(t *testing.T) {
	b := newBox(t, newDriver(t))
	for _, c := range []struct {
		name, text string
		want       sandbox.Exhaustion
	}{
		{"nothing", "true", ""},
		{"workspace", "dd if=/dev/zero of=/work/big bs=1M count=100; rm -f /work/big2", sandbox.ExhaustedDisk},
		{"workspace freed", "rm /work/big; echo ok", freeing},
		{"workspace inodes", "python3 -c 'import os\nfor i in range(60000):\n  try: os.mknod(\"/work/%d\" % i)\n  except OSError as e: print(i, e); break'", sandbox.ExhaustedDisk},
		{"workspace inodes freed", "cd /work && find . -mindepth 1 -delete", freeing},
		{"tmp", "dd if=/dev/zero of=/tmp/big bs=1M count=100", sandbox.ExhaustedTemp},
		{"tmp freed", "rm /tmp/big", freeing},
		{"home", "dd if=/dev/zero of=$HOME/big bs=1M count=100", sandbox.ExhaustedTemp},
		{"home freed", "rm $HOME/big", freeing},
		{"shared memory", "dd if=/dev/zero of=/dev/shm/big bs=1M count=100", sandbox.ExhaustedTemp},
		{"shared memory freed", "rm /dev/shm/big", freeing},
		{"memory", "python3 -c 'x = bytearray(2 << 30); print(len(x))'", sandbox.ExhaustedMemory},
		{"processes", "for i in $(seq 300); do sleep 30 & done; wait", sandbox.ExhaustedPIDs},
		{"threads", "python3 -c 'import threading,time\nfor i in range(300): threading.Thread(target=time.sleep, args=(5,)).start()'", sandbox.ExhaustedPIDs},
		{"fork bomb", "f() { f | f & }; f; sleep 3", sandbox.ExhaustedPIDs},
		{"after the bomb", "ls -d /proc/[0-9]* | wc -l; sleep 1", ""},
		{"open files", "python3 -c 'import time\nl = []\ntry:\n  while True: l.append(open(\"/dev/null\"))\nexcept OSError as e: print(e); time.sleep(5)'", sandbox.ExhaustedFiles},
		{"nothing again", "echo ok", ""},
	} {
		out, r := shAndKill(t, b, c.text)
		if c.want == freeing {
			r.Exhausted, c.want = nil, ""
		}
		want := []sandbox.Exhaustion{}
		if c.want != "" {
			want = append(want, c.want)
		}
		if !slices.Equal(r.Exhausted, want) || r.Lost {
			t.Errorf("%s: exhausted %q, want %q (exit %d, lost %v, %s) %.200s", c.name, r.Exhausted, want, r.Exit, r.Lost, r.Reason, out)
		}
		if r.Lost {
			t.Fatal("the box did not survive")
		}
	}
}
