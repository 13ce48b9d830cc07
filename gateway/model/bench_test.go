package model_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/gateway/model"
	"cofferdam/internal/redact"
	"cofferdam/policy"
	"cofferdam/trace"
)

// BenchmarkFirstToken is the time from a request's first byte to the answer's
// first content, direct and through the gateway with a record on disk, synced
// as in the product. Requests are as large as agents send in their first turn
// (60 KB) and late in a session (600 KB).
func BenchmarkFirstToken(b *testing.B) {
	server, _ := turns(b, stream(anthropicStream, false))
	set, err := policy.New(policy.Grant{Model: "provider"})
	if err != nil {
		b.Fatal(err)
	}
	key, err := trace.OpenKey(filepath.Join(b.TempDir(), "key"), "bench")
	if err != nil {
		b.Fatal(err)
	}
	store, err := trace.Open(filepath.Join(b.TempDir(), "trace"), key, redact.New(nil))
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	caller, _, _ := gatewaytest.NewCaller(b, policy.Grant{})
	log, err := store.Session(caller.Scope, caller.Session)
	if err != nil {
		b.Fatal(err)
	}
	caller.Policy, caller.Record = gateway.NewRules(set), log
	caller.Model = cofferdam.Model{Name: "provider", Provider: "anthropic", URL: server.URL}
	g := model.New(model.Options{Dialer: &gateway.Dialer{}, Attach: func(context.Context, cofferdam.Model, http.Header) error { return nil }})
	through := "http://" + gatewaytest.Serve(b, g, caller, gateway.Target{Host: gateway.ModelHost, Port: 80})
	for _, size := range []int{60, 600} {
		for _, way := range []struct{ name, url string }{{"direct", server.URL}, {"gateway", through}} {
			b.Run(fmt.Sprintf("%dKB/%s", size, way.name), func(b *testing.B) { firstTokens(b, way.url, size<<10) })
		}
	}
}

func firstTokens(b *testing.B, url string, size int) {
	tool := `{"name":"Bash","input_schema":{"type":"object","properties":{"command":{"type":"string","description":"what to run"}}}},`
	turn := `{"role":"user","content":[{"type":"text","text":"` + strings.Repeat(`a line of a file, with \"quotes\"\n`, 30) + `"}]},`
	body := `{"model":"m","stream":true,"tools":[` + strings.Repeat(tool, 20) + `{"name":"x"}],"messages":[` +
		strings.Repeat(turn, size/len(turn)) + `{"role":"user","content":"hi"}]}`
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var times []time.Duration
	for b.Loop() {
		begun := time.Now()
		resp, err := client.Post(url+"/v1/messages", "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				b.Fatal(err)
			}
			if strings.Contains(line, "text_delta") {
				times = append(times, time.Since(begun))
				_, _ = io.Copy(io.Discard, r) // the connection is used again
				break
			}
		}
		resp.Body.Close()
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
}
