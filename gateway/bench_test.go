package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam"
	"cofferdam/gateway"
	"cofferdam/gateway/gatewaytest"
	"cofferdam/policy"
)

// forgets numbers events and keeps none: what a record on disk costs has a
// benchmark of its own, in trace.
type forgets struct{ n uint64 }

func (f *forgets) Record(_ context.Context, e cofferdam.Event) (cofferdam.Event, error) {
	e.Seq = f.n
	f.n++
	return e, nil
}

// BenchmarkHandle takes requests through the six steps, with a record in memory:
// with one allowed host, and with a policy of a thousand rules.
func BenchmarkHandle(b *testing.B) {
	var text strings.Builder
	text.WriteString("[egress]\nallow = [\n")
	for i := range 600 {
		fmt.Fprintf(&text, "\"h%d.test\",\n", i)
	}
	text.WriteString("]\n")
	for i := range 400 {
		fmt.Fprintf(&text, "[[egress.rule]]\nid = \"r%d\"\neffect = \"allow\"\nhosts = [\"*.z%d.test\"]\nmethods = [\"GET\"]\npaths = [\"/v%d/*\"]\n", i, i%50, i)
	}
	project, err := policy.ParseDocument(policy.ProjectName, []byte(text.String()), nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		grant policy.Grant
	}{{"rules=1", policy.Grant{Allow: gatewaytest.Allow(b, "h7.test")}}, {"rules=1000", policy.Grant{Project: &project}}} {
		b.Run(c.name, func(b *testing.B) {
			caller, _, _ := gatewaytest.NewCaller(b, c.grant)
			caller.Record = &forgets{}
			r := request("h7.test")
			var took []time.Duration
			for b.Loop() {
				caller.Counts.Acts.Store(0)
				begun := time.Now()
				err := gateway.Handle(context.Background(), caller, r, func(context.Context) (gateway.Outcome, error) { return gateway.Outcome{}, nil })
				took = append(took, time.Since(begun))
				if err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
			b.ReportMetric(float64(took[(len(took)-1)*99/100].Nanoseconds())/1000, "p99-µs")
		})
	}
}
