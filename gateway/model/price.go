package model

import (
	_ "embed"
	"fmt"
	"strings"

	"cofferdam"

	"github.com/pelletier/go-toml/v2"
)

//go:embed prices.toml
var listPrices string

// prices finds what a model costs. Those of the operator stand before those of
// the embedded list.
type prices struct{ own, list []cofferdam.Price }

// newPrices returns the operator's prices over the embedded ones.
func newPrices(own []cofferdam.Price) prices {
	return prices{own: own, list: ListPrices()}
}

// ListPrices returns the providers' list prices that this version knows.
func ListPrices() []cofferdam.Price {
	var file struct {
		Price []cofferdam.ListedPrice `toml:"price"`
	}
	if err := toml.NewDecoder(strings.NewReader(listPrices)).DisallowUnknownFields().Decode(&file); err != nil {
		panic("reading the embedded file prices.toml: " + err.Error()) // cannot happen: a test reads it
	}
	var list []cofferdam.Price
	for _, l := range file.Price {
		p, err := l.Price()
		if err != nil {
			panic(fmt.Sprintf("reading the embedded file prices.toml: %s: %v", l.Model, err)) // cannot happen: a test reads it
		}
		list = append(list, p)
	}
	return list
}

// of returns the price of a call by its model id and its tokens of input. Of
// several patterns that match, the longest counts; one without * is longer than
// any that has one. Of several prices of one pattern that with the highest Above
// counts.
func (p prices) of(model string, input int64) (cofferdam.Price, bool) {
	model = strings.TrimPrefix(model, "models/") // Gemini's own prefix
	for _, list := range [][]cofferdam.Price{p.own, p.list} {
		var best *cofferdam.Price
		for i := range list {
			if q := &list[i]; matches(q.Model, model) && (q.Above == 0 || input > q.Above) && (best == nil || nearer(*q, *best)) {
				best = q
			}
		}
		if best != nil {
			return *best, true
		}
	}
	return cofferdam.Price{}, false
}

func matches(pattern, model string) bool {
	start, open := strings.CutSuffix(pattern, "*")
	return pattern == model || open && strings.HasPrefix(model, start)
}

func nearer(a, b cofferdam.Price) bool {
	if a.Model == b.Model {
		return a.Above > b.Above
	}
	openA, openB := strings.HasSuffix(a.Model, "*"), strings.HasSuffix(b.Model, "*")
	if openA != openB {
		return openB
	}
	return len(a.Model) > len(b.Model)
}

// hourFactor is how often an hour's place in the cache costs the price of input,
// at the one provider that has such.
const hourFactor = 2

// costOf returns microdollars, rounded up once per call. A call within maxTokens
// at the highest price that there can be does not overflow.
func costOf(p cofferdam.Price, t tokens) int64 {
	sum := t.Input*p.Input + t.CacheRead*p.CacheRead + (t.CacheWrite-t.Hour)*p.CacheWrite + t.Hour*p.Input*hourFactor + t.Output*p.Output
	return (sum + 1e6 - 1) / 1e6
}
