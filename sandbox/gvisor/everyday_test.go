package gvisor

import (
	"testing"
)

// TestEverydayWorkspace does what tools do in a workspace; each line must work
// as on any Linux.
func TestEverydayWorkspace(t *testing.T) {
	b := newBox(t, newDriver(t))
	for _, c := range []struct{ name, text, want string }{
		{"git", "git init -q . && git config user.email a@b && git config user.name a && echo x > f && git add f && git commit -qm one && git status --porcelain && git log --format=%s", "one"},
		{"clone into itself", "git clone -q . /tmp/copy && cat /tmp/copy/f", "x"},
		{"fifo", "mkfifo p && (echo through > p &) && cat p", "through"},
		{"unix socket", `python3 -c '
import socket, threading
s = socket.socket(socket.AF_UNIX); s.bind("/work/s"); s.listen(1)
def serve(): c, _ = s.accept(); c.sendall(b"hello")
threading.Thread(target=serve).start()
c = socket.socket(socket.AF_UNIX); c.connect("/work/s"); print(c.recv(5).decode())'`, "hello"},
		{"shared mapping", `python3 -c '
import mmap
f = open("/work/m", "w+b"); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[4096:4100] = b"data"; m.flush(); m.close(); f.seek(4096); print(f.read(4).decode())'`, "data"},
		{"database", `python3 -c '
import sqlite3
d = sqlite3.connect("/work/db"); d.execute("pragma journal_mode=wal"); d.execute("create table t(a)"); d.execute("insert into t values(42)"); d.commit(); print(d.execute("select a from t").fetchone()[0])'`, "42"},
		{"links, names and modes", "ln f hard && ln -s f soft && mv hard 'é ü' && chmod 751 f && stat -c %a:%h f && cat soft 'é ü'", "751:2\nx\nx"},
		{"locks", "flock lock -c 'flock -n lock true || echo held'", "held"},
		{"semaphores", "python3 -c 'import multiprocessing as m; s = m.Semaphore(2); s.acquire(); p = m.Process(target=print, args=(\"child\",)); p.start(); p.join()'", "child"},
		{"processes", "python3 -c 'from concurrent.futures import ProcessPoolExecutor as P\nwith P(2) as p: print(sum(p.map(abs, [-1, -2])))'", "3"},
		{"terminals of its own", "python3 -c 'import pty,os\npid, fd = pty.fork()\nif pid == 0: os.execvp(\"tty\", [\"tty\"])\nprint(os.read(fd, 100).decode().strip().startswith(\"/dev/pts/\"))'", "True"},
		{"loopback", `python3 -c '
import socket, threading
s = socket.create_server(("127.0.0.1", 0))
def serve(): c, _ = s.accept(); c.sendall(b"near")
threading.Thread(target=serve).start()
print(socket.create_connection(s.getsockname()).recv(4).decode())'`, "near"},
		{"programs in temp", "printf '#!/bin/sh\necho built\n' > /tmp/x && chmod +x /tmp/x && /tmp/x && cp /tmp/x ~/x && ~/x", "built\nbuilt"},
		{"time", "[ $(date +%Y) -ge 2026 ] && echo now", "now"},
	} {
		if got, r := sh(t, b, "cd /work\n"+c.text); got != c.want || r.Exit != 0 {
			t.Errorf("%s: got %q (%+v), want %q", c.name, got, r, c.want)
		}
	}
}
