package model

import (
	"math"
	"testing"

	"cofferdam"
)

// TestListPrices: the embedded list is read, and is what it says: no model of
// the three agents' defaults is missing, none is cheaper by reading from the
// cache than nothing.
func TestListPrices(t *testing.T) {
	list := ListPrices()
	seen := map[[2]any]bool{}
	for _, p := range list {
		key := [2]any{p.Model, p.Above}
		if seen[key] {
			t.Errorf("%s is listed twice", p.Model)
		}
		seen[key] = true
		if p.Input <= 0 || p.Output < p.Input || p.CacheRead <= 0 || p.CacheRead > p.Input || p.CacheWrite < p.Input {
			t.Errorf("%+v cannot be right", p)
		}
	}
	for id, want := range map[string]int64{
		"claude-sonnet-4-5-20250929": 3_000_000, "claude-opus-4-20250514": 15_000_000, "claude-opus-4-5": 5_000_000, "claude-haiku-4-5-20251001": 1_000_000,
		"gpt-5.2-codex": 1_750_000, "gpt-5": 1_250_000, "gpt-5-mini": 250_000, "gpt-5.1-codex-mini": 250_000, "gpt-5.1-codex-max": 1_250_000,
		"models/gemini-2.5-pro": 1_250_000, "gemini-2.5-flash": 300_000, "gemini-2.5-flash-lite": 100_000,
	} {
		if p, ok := newPrices(nil).of(id, 1000); !ok || p.Input != want {
			t.Errorf("%s costs %+v, want input %d", id, p, want)
		}
	}
	for _, id := range []string{"", "gpt-6", "gpt-5x", "claude", "cofferdam-rehearsal", "llama3.1:8b"} {
		if p, ok := newPrices(nil).of(id, 1000); ok {
			t.Errorf("%q has a price, that of %s", id, p.Model)
		}
	}
}

func TestWhichPriceCounts(t *testing.T) {
	p := prices{
		own: []cofferdam.Price{{Model: "a-*", Input: 1}, {Model: "a-b*", Input: 2}, {Model: "a-b", Input: 3}, {Model: "*", Above: 1000, Input: 4}},
		list: []cofferdam.Price{
			{Model: "l*", Input: 5}, {Model: "l*", Above: 100, Input: 6}, {Model: "l*", Above: 200, Input: 7}, {Model: "a-bcd", Input: 8},
		},
	}
	for _, c := range []struct {
		model string
		input int64
		want  int64
	}{
		{"a-b", 1, 3}, {"a-bc", 1, 2}, {"a-c", 1, 1}, {"a-bcd", 1, 2}, // the operator's pattern stands before a listed id
		{"l", 100, 5}, {"l", 101, 6}, {"l", 200, 6}, {"l", 201, 7}, {"l", 1001, 4}, {"z", 1001, 4}, {"z", 1000, 0},
	} {
		if got, ok := p.of(c.model, c.input); got.Input != c.want || ok != (c.want > 0) {
			t.Errorf("%s with %d tokens: %d, want %d", c.model, c.input, got.Input, c.want)
		}
	}
}

func TestCostIsRoundedUp(t *testing.T) {
	p := cofferdam.Price{Input: 3_000_000, CacheRead: 300_000, CacheWrite: 3_750_000, Output: 15_000_000}
	for _, c := range []struct {
		t    tokens
		want int64
	}{
		{tokens{}, 0},
		{tokens{Input: 1}, 3},
		{tokens{CacheRead: 1}, 1},
		{tokens{CacheRead: 4}, 2},
		{tokens{CacheWrite: 10}, 38},
		{tokens{CacheWrite: 10, Hour: 10}, 60},
		{tokens{CacheWrite: 10, Hour: 4}, 47},
		{tokens{Input: 1000, Output: 1000}, 18_000},
	} {
		if got := costOf(p, c.t); got != c.want {
			t.Errorf("%+v: %d microdollars, want %d", c.t, got, c.want)
		}
	}
	dearest := cofferdam.Price{Input: cofferdam.MaxPrice * 1e6, CacheRead: cofferdam.MaxPrice * 1e6, CacheWrite: cofferdam.MaxPrice * 1e6, Output: cofferdam.MaxPrice * 1e6}
	if got := costOf(dearest, tokens{maxTokens, maxTokens, maxTokens, maxTokens, maxTokens}); got <= 0 || got > math.MaxInt64/1_000_000 {
		t.Errorf("the dearest call there can be costs %d", got)
	}
}
