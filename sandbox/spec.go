package sandbox

import (
	"fmt"
	"regexp"

	"cofferdam"
)

var snapshotIDs = regexp.MustCompile(`^s-[0-9a-f]{32}$`)

// CheckSnapshotID refuses what is no SnapshotID: it becomes a name on the host.
func CheckSnapshotID(op string, id SnapshotID) error {
	if snapshotIDs.MatchString(string(id)) {
		return nil
	}
	return Refuse(op, fmt.Sprintf("snapshot %.64q", string(id)), `not "s-" and 32 hexadecimal digits`, "")
}

// Refuse is the error for something that cannot be had as it was asked for.
func Refuse(op, subject, reason, hint string) error {
	return &cofferdam.Error{Op: op, Kind: cofferdam.Invalid, Subject: subject, Reason: reason, Hint: hint}
}
