package environment

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"cofferdam"
)

// keep puts the image that is there aside, before one that was made anew takes
// its place, and returns when it was made. One is kept of each definition.
func (c *Cache) keep(d cofferdam.Digest) (made time.Time, err error) {
	err = c.move(c.path(d, ".img"), c.path(d, ".before"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return made, err
	}
	e, _ := c.read(d)
	if err != nil && !e.Before.IsZero() { // there is none; one that was put aside earlier stays
		return e.Before, nil
	}
	if _, none := os.Stat(c.path(d, ".before")); none != nil {
		return made, nil
	}
	return e.Created, nil // also if a process ended after it had put it aside
}

func noBefore(op string, d cofferdam.Digest) error {
	return &cofferdam.Error{
		Op: op, Kind: cofferdam.NotFound, Subject: "environment " + string(d), Reason: "none before it is kept",
		Hint: "one is kept when its setup runs again with the same definition; an earlier definition has an environment of its own: revert the file",
	}
}

// Rollback puts the result of the setup before the last one back into its place,
// where it counts as made now; NotFound if none is kept. A box that uses the
// other keeps it until it ends. why is what its entry will say.
func (c *Cache) Rollback(scope cofferdam.Scope, d cofferdam.Digest, why string, now time.Time) error {
	const op = "environment.Rollback"
	for _, e := range c.List(scope) {
		if e.Digest != d {
			continue
		}
		err := c.move(c.path(d, ".before"), c.path(d, ".img"))
		if errors.Is(err, fs.ErrNotExist) {
			return noBefore(op, d)
		}
		if err != nil {
			return unavailable(c.dir, err)
		}
		e.Created, e.Kept, e.Before, e.Gone, e.Why = e.Before, now, time.Time{}, "", why
		return c.write(e)
	}
	return noBefore(op, d)
}

// Reject removes a result that turned out not to be ready; the one before it
// stays, and before says that there is one.
func (c *Cache) Reject(scope cofferdam.Scope, d cofferdam.Digest, why string) (before bool, err error) {
	for _, e := range c.List(scope) {
		if e.Digest != d {
			continue
		}
		if err := c.drop(d, why); err != nil {
			return false, unavailable(c.dir, err)
		}
		_, err := os.Stat(c.path(d, ".before"))
		return err == nil, nil
	}
	return false, nil
}
