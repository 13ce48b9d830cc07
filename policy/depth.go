package policy

import (
	"fmt"
	"strings"
)

// Bounds of Cedar text in a document. Who reads it calls itself for each bracket
// that is open and for each operator of a chain, and a stack that is too deep ends
// the whole server. Source: docs/SPECIFICATION.md, "Policy".
const (
	maxCedar   = 256 << 10 // bytes
	maxNesting = 64        // brackets, and "if"s, that are open at a time
)

// checkCedar refuses Cedar text that could not be read without harm.
func checkCedar(text string) error {
	if len(text) > maxCedar {
		return fmt.Errorf("cedar.text: it is larger than %d bytes", maxCedar)
	}
	open, ifs := 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case strings.HasPrefix(text[i:], "//"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case strings.IndexByte("([{", c) >= 0:
			open++
		case strings.IndexByte(")]}", c) >= 0:
			open--
		case c == ';':
			ifs = 0
		case word(text, i, "if"):
			ifs++
		}
		if open > maxNesting || ifs > maxNesting {
			return fmt.Errorf("cedar.text: it is nested more than %d deep", maxNesting)
		}
	}
	return nil
}

// word says whether w stands at i of text, and no letter beside it.
func word(text string, i int, w string) bool {
	letter := func(c byte) bool {
		return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	end := i + len(w)
	return strings.HasPrefix(text[i:], w) && (i == 0 || !letter(text[i-1])) && (end == len(text) || !letter(text[end]))
}
