package policy

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// checkKeys refuses a key that is not written as docs/policy.md has it. The TOML
// that reads documents takes Deny and DENY for deny, and the later of them counts:
// a person would read another list than the one that is judged by.
func checkKeys(text []byte) error {
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		return err
	}
	return lowerKeys(all, "")
}

func lowerKeys(v any, at string) error {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if strings.ToLower(key) != key {
				return fmt.Errorf("the key %q is unknown: keys are in lower case", shorten(at+key))
			}
			if err := lowerKeys(inner, at+key+"."); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range v {
			if err := lowerKeys(inner, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// WantsSecond says whether the text of an organisation's document asks for a second
// person, as far as it can be read: what has become unreadable elsewhere, because a
// preset is gone, asks for one as before.
func WantsSecond(text []byte) bool {
	var f struct {
		Second bool `toml:"second_person"`
	}
	return toml.Unmarshal(text, &f) == nil && f.Second
}
