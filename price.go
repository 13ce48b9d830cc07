package cofferdam

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Price is what a model costs, in microdollars per million tokens: 3,000,000
// are three US dollars for a million tokens, or three microdollars for one.
type Price struct {
	Model      string // model id; a * at the end stands for the rest
	Above      int64  // only of calls with more input tokens than this
	Input      int64
	Output     int64
	CacheRead  int64 // input that came from the provider's cache
	CacheWrite int64 // input that went into it
}

// ListedPrice is a Price as people write it: US dollars per million tokens.
// What is left out of the cache's prices is that of input.
type ListedPrice struct {
	Model      string   `toml:"model"`
	Above      int64    `toml:"above"`
	Input      *float64 `toml:"input"`
	Output     *float64 `toml:"output"`
	CacheRead  *float64 `toml:"cache_read"`
	CacheWrite *float64 `toml:"cache_write"`
}

// MaxPrice bounds a price, in US dollars per million tokens. The dearest model
// there has been cost 600.
const MaxPrice = 1000

// Price returns l in our unit, or says what is wrong with it.
func (l ListedPrice) Price() (Price, error) {
	p := Price{Model: l.Model, Above: l.Above}
	if name := strings.TrimSuffix(l.Model, "*"); l.Model == "" || len(l.Model) > 200 || strings.ContainsAny(name, "* \t\n") {
		return p, fmt.Errorf("%.60q is no model id; a * may stand at its end only", l.Model)
	}
	if l.Above < 0 {
		return p, fmt.Errorf("%d is no number of tokens", l.Above)
	}
	if l.Input == nil || l.Output == nil {
		return p, fmt.Errorf("its prices of input and output are needed; 0 for what costs nothing")
	}
	read, write := *l.Input, *l.Input
	if l.CacheRead != nil {
		read = *l.CacheRead
	}
	if l.CacheWrite != nil {
		write = *l.CacheWrite
	}
	for _, v := range []struct {
		from float64
		to   *int64
	}{{*l.Input, &p.Input}, {*l.Output, &p.Output}, {read, &p.CacheRead}, {write, &p.CacheWrite}} {
		if !(v.from >= 0 && v.from <= MaxPrice) { // also what is not a number
			return p, fmt.Errorf("%v is no price of a million tokens: from 0 to %d dollars", v.from, MaxPrice)
		}
		*v.to = int64(math.Ceil(v.from*1e6 - 1e-6)) // no price becomes nothing
	}
	return p, nil
}

// ParseDollars reads an amount of money, such as 0.50 or 12, into microdollars.
// It takes at most six digits behind the point.
func ParseDollars(text string) (int64, error) {
	whole, part, point := strings.Cut(strings.TrimPrefix(text, "$"), ".")
	digits := whole + part + strings.Repeat("0", max(0, 6-len(part)))
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || len(part) > 6 || len(whole) > 9 || whole == "" || point && part == "" || strings.ContainsAny(digits, "+-_") {
		return 0, fmt.Errorf("%.40q is no amount of dollars such as 0.50", text)
	}
	return n, nil
}

// Dollars writes microdollars as dollars, with two digits behind the point or
// as many more as it takes.
func Dollars(micro int64) string {
	text := fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6)
	for strings.HasSuffix(text, "0") && text[len(text)-3] != '.' {
		text = text[:len(text)-1]
	}
	return "$" + text
}
