package store

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	shortName = regexp.MustCompile(`^t-[0-9]{1,9}$`)
	idPrefix  = regexp.MustCompile(`^[a-z]-[0-9a-f]{6,32}$`)
)

// prefix returns the range of ids that begin with name, if name is the
// beginning of an id with the given letter. Fewer than six digits are not
// taken: a typing error must not find a stranger.
func prefix(letter, name string) (lo, hi string, ok bool) {
	if !idPrefix.MatchString(name) || !strings.HasPrefix(name, letter+"-") {
		return "", "", false
	}
	return name, name + "g", true // "g" follows every hexadecimal digit
}

// number returns the number in a short name such as "t-42".
func number(name string) (int64, bool) {
	if !shortName.MatchString(name) {
		return 0, false
	}
	n, err := strconv.ParseInt(name[2:], 10, 64)
	return n, err == nil
}

// maxShown bounds what an error repeats of a name somebody sent.
const maxShown = 80

func show(name string) string {
	if len(name) > maxShown {
		return strconv.Quote(name[:maxShown]) + "…"
	}
	if strconv.Quote(name) != `"`+name+`"` || name == "" {
		return strconv.Quote(name)
	}
	return name
}
