package daemon

import (
	"fmt"
	"maps"
	"slices"

	"cofferdam"
	"cofferdam/internal/config"
	"cofferdam/policy"
)

// checkAllow refuses hosts of the operator file that policy cannot read: every
// task would be blocked by them. presets are all that there are.
func checkAllow(c config.Config, presets map[string][]string) error {
	refuse := func(key string, err error) error {
		return &cofferdam.Error{
			Op: "daemon.checkAllow", Kind: cofferdam.Invalid, Subject: "file " + c.File, Reason: fmt.Sprintf("key %q: %v", key, err),
			Hint: cofferdam.HintOf(err), Err: err,
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Presets)) {
		if _, err := policy.ParseAllow(c.Presets[name], nil); err != nil {
			return refuse("presets."+name, err)
		}
	}
	if _, err := policy.ParseAllow(c.Allow, presets); err != nil {
		return refuse("egress.allow", err)
	}
	return nil
}
