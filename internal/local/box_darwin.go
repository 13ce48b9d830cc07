package local

import (
	"context"

	"cofferdam/sandbox"
	"cofferdam/sandbox/seatbelt"
)

// walls are what a run is enclosed by, for its record.
const walls = "seatbelt"

// copyFlags make cp copy a folder as it is, sharing data where the disk can.
var copyFlags = []string{"-a", "-c"}

// enclose runs the command in its box.
func (r *run) enclose(ctx context.Context) (sandbox.Result, error) {
	return mac{run: r, program: seatbelt.Program}.enclose(ctx)
}
