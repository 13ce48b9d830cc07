package scripttest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cofferdam"

	"github.com/rogpeppe/go-internal/testscript"
)

// noticeIn is how long a notice may be on its way.
const noticeIn = 3 * time.Minute

// hook is where a server's notices of questions arrive.
type hook struct {
	mu   sync.Mutex
	list []delivery // those it has answered; guarded by mu
	read int        // of the list, by notice
	log  string     // every body, as it came
}

// delivery is a message as it came.
type delivery struct {
	id, at, signatures string
	came               time.Time
	body               []byte
}

// cmdHook starts a receiver of notices on loopback; NAME is its URL, and NAME.log has the
// bodies.
func cmdHook(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "hook NAME")
	h := &hook{log: ts.MkAbs(args[0] + ".log")}
	ts.Check(os.WriteFile(h.log, nil, 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // until it is closed
	of(ts).labs[args[0]] = &lab{stop: func() { server.Close() }, hook: h}
	ts.Setenv(args[0], "http://"+l.Addr().String()+"/notices")
}

func hookOf(ts *testscript.TestScript, name string) *hook {
	l := of(ts).labs[name]
	if l == nil || l.hook == nil {
		ts.Fatalf("no hook is called %s", name)
	}
	return l.hook
}

// ServeHTTP implements http.Handler.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f, err := os.OpenFile(h.log, os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintf(f, "%s %s\n", r.Header.Get("webhook-id"), body)
		f.Close()
	}
	h.list = append(h.list, delivery{r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), r.Header.Get("webhook-signature"), time.Now(), body})
}

// next returns the message after the last one that was read.
func (h *hook) next() (d delivery, ok bool) {
	for late := time.Now().Add(noticeIn); ; time.Sleep(20 * time.Millisecond) {
		h.mu.Lock()
		if h.read < len(h.list) {
			d, ok = h.list[h.read], true
			h.read++
		}
		h.mu.Unlock()
		if ok || time.Now().After(late) {
			return d, ok
		}
	}
}

// cmdNotice reads on in the notices that came to a hook up to one that says that a
// question is in STATE, or in any with "-", and prints the question, its hash, its organisation and
// which of the secrets in the FILEs have signed it, in the order of the signatures. A
// message on the way to it that none of them has signed is a failure.
func cmdNotice(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 3, "notice NAME STATE FILE...")
	h := hookOf(ts, args[0])
	for {
		d, ok := h.next()
		if !ok {
			ts.Fatalf("notice: none that a question is %s within %s", args[1], noticeIn)
		}
		var n struct {
			Schema   string             `json:"schema"`
			Question cofferdam.Question `json:"question"`
		}
		ts.Check(json.Unmarshal(d.body, &n))
		by := d.signers(ts, args[2:])
		ts.Logf("notice %s: %s %s by %v", d.id, n.Question.ID, n.Question.State, by)
		if len(by) == 0 || n.Schema != "cofferdam/approval-notice/v1" {
			ts.Fatalf("notice %s: nobody has signed it, or it is none: %.1000s", d.id, d.body)
		}
		if args[1] != "-" && string(n.Question.State) != args[1] {
			continue
		}
		_, err := fmt.Fprintf(ts.Stdout(), "%s %s %s by %s\n", n.Question.ID, n.Question.Hash, n.Question.Organization, strings.Join(by, " "))
		ts.Check(err)
		return
	}
}

// signers are the files whose secrets have signed it, as the Standard Webhooks
// specification says it; "?" is a signature of none of them. It is written here anew, as a receiver would.
func (d delivery) signers(ts *testscript.TestScript, files []string) (by []string) {
	at, err := strconv.ParseInt(d.at, 10, 64)
	if err != nil || d.came.Sub(time.Unix(at, 0)).Abs() > time.Minute {
		return nil
	}
	for _, s := range strings.Fields(d.signatures) {
		i := slices.IndexFunc(files, func(f string) bool {
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(ts.ReadFile(f)), "whsec_"))
			ts.Check(err)
			m := hmac.New(sha256.New, key)
			fmt.Fprintf(m, "%s.%s.%s", d.id, d.at, d.body) // to memory
			return hmac.Equal([]byte(s), []byte("v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil))))
		})
		if i < 0 {
			by = append(by, "?")
			continue
		}
		by = append(by, filepath.Base(files[i]))
	}
	if !slices.ContainsFunc(by, func(s string) bool { return s != "?" }) {
		return nil
	}
	return by
}
