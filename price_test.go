package cofferdam_test

import (
	"math"
	"testing"

	"cofferdam"
)

func TestDollars(t *testing.T) {
	for text, want := range map[string]int64{
		"0.50": 500_000, "12": 12_000_000, "$0.01": 10_000, "0.000001": 1, "100": 100_000_000, "0.1": 100_000, "007.5": 7_500_000, "0": 0,
	} {
		got, err := cofferdam.ParseDollars(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if again, err := cofferdam.ParseDollars(cofferdam.Dollars(got)); err != nil || again != got {
			t.Errorf("%q is written as %s, which reads as %d, %v", text, cofferdam.Dollars(got), again, err)
		}
	}
	for _, text := range []string{"", ".", "0.", ".5", "-1", "+1", "1e3", "0,50", "0.0000001", "NaN", "1_000", "0.-5", "1.+5", "12345678901", "5 ", "$$5", "0x1"} {
		if got, err := cofferdam.ParseDollars(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
	for micro, want := range map[int64]string{0: "$0.00", 500_000: "$0.50", 123: "$0.000123", 1_234_500: "$1.2345", 10_000: "$0.01", 3_100_000: "$3.10"} {
		if got := cofferdam.Dollars(micro); got != want {
			t.Errorf("%d: %s, want %s", micro, got, want)
		}
	}
}

func TestListedPrice(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	p, err := cofferdam.ListedPrice{Model: "m-*", Input: f(0.0750001), Output: f(2.5), CacheRead: f(0)}.Price()
	if want := (cofferdam.Price{Model: "m-*", Input: 75_001, Output: 2_500_000, CacheWrite: 75_001}); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := (cofferdam.ListedPrice{Model: "m", Input: f(0.15), Output: f(0.6)}).Price(); err != nil || p.Input != 150_000 || p.Output != 600_000 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, l := range []cofferdam.ListedPrice{
		{},
		{Model: "*m", Input: f(1), Output: f(1)},
		{Model: "a b", Input: f(1), Output: f(1)},
		{Model: "m", Input: f(-1), Output: f(1)},
		{Model: "m", Input: f(1), Output: f(math.NaN())},
		{Model: "m", Input: f(math.Inf(1)), Output: f(1)},
		{Model: "m", Input: f(1)},
		{Model: "m", Output: f(1)},
		{Model: "m", Input: f(cofferdam.MaxPrice + 1), Output: f(1)},
		{Model: "m", Input: f(1), Output: f(1), Above: -1},
	} {
		if p, err := l.Price(); err == nil {
			t.Errorf("%+v is taken as %+v", l, p)
		}
	}
}
