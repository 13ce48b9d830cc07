package wire_test

import (
	"testing"
	"time"

	"cofferdam"
	"cofferdam/policy"
)

// TestANameThatIsOpenedLater: a name that was refused leads to its gateway once a
// person opened it, or a policy allows it, on the wire that there is. Until then
// asking again is not recorded again.
func TestANameThatIsOpenedLater(t *testing.T) {
	b := newBench(t, grant(t, "good.test"))
	b.attach(t)
	for range 3 {
		if got, err := b.greeting(t, "late.test", 80); got != ":80" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if n := len(b.record.Find(cofferdam.EventDNS)); n != 1 {
		t.Errorf("%d events of one refused name", n)
	}
	r, err := policy.ParseOpening(policy.HTTP, "late.test")
	if err != nil {
		t.Fatal(err)
	}
	r.ID = "given.a-1"
	if err := b.caller.Policy.Give(policy.Opening{Rule: r, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"late.test": "late.test:80", "other.test": ":80"} {
		if got, err := b.greeting(t, name, 80); got != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := b.caller.Policy.Replace(grant(t, "good.test", "other.test")); err != nil {
		t.Fatal(err)
	}
	if got, err := b.greeting(t, "other.test", 80); got != "other.test:80" || err != nil {
		t.Errorf("under another policy: %q, %v", got, err)
	}
}
