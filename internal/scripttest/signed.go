package scripttest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdSigned is a system outside that brings answers. It has a key made of the text
// SEED; "signed SEED" alone prints its public part. Otherwise it sends FILE about
// QUESTION as the message ID, AGE seconds old, and prints the status and the answer.
func cmdSigned(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1 || len(args) == 5, "signed SEED [ID AGE QUESTION FILE]")
	sum := sha256.Sum256([]byte(args[0]))
	key := ed25519.NewKeyFromSeed(sum[:])
	if len(args) == 1 {
		_, err := fmt.Fprintf(ts.Stdout(), "whpk_%s\n", base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)))
		ts.Check(err)
		return
	}
	age, err := strconv.Atoi(args[2])
	ts.Check(err)
	body, err := os.ReadFile(ts.MkAbs(args[4]))
	ts.Check(err)
	at := strconv.FormatInt(time.Now().Unix()-int64(age), 10)
	socket := strings.TrimPrefix(ts.Getenv("COFFERDAM_SERVER"), "unix:")
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequest(http.MethodPost, "http://localhost/v1/approvals/"+args[3]+"/webhook", bytes.NewReader(body))
	ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("webhook-id", args[1])
	r.Header.Set("webhook-timestamp", at)
	r.Header.Set("webhook-signature", "v1a,"+base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(args[1]+"."+at+"."+string(body)))))
	resp, err := c.Do(r)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%d %s\n", resp.StatusCode, text)
	ts.Check(err)
}
