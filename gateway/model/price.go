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

// of returns the price of a model id. Of several patterns that match, the
// longest counts; one without * is longer than any that has one.
func (p prices) of(model string) (cofferdam.Price, bool) {
	model = strings.TrimPrefix(model, "models/") // Gemini's own prefix
	for _, list := range [][]cofferdam.Price{p.own, p.list} {
		best := -1
		for i, price := range list {
			start, open := strings.CutSuffix(price.Model, "*")
			switch {
			case price.Model == model:
				return price, true
			case open && strings.HasPrefix(model, start) && (best < 0 || len(price.Model) > len(list[best].Model)):
				best = i
			}
		}
		if best >= 0 {
			return list[best], true
		}
	}
	return cofferdam.Price{}, false
}

// costOf returns microdollars, rounded up once per call. A call within maxTokens
// at the highest price that there can be does not overflow.
func costOf(p cofferdam.Price, t tokens) int64 {
	sum := t.Input*p.Input + t.CacheRead*p.CacheRead + t.CacheWrite*p.CacheWrite + t.Output*p.Output
	return (sum + 1e6 - 1) / 1e6
}
