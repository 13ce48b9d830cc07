package policy

import "cofferdam"

// Set is a compiled policy. It is immutable and safe for concurrent use.
type Set struct{ digest cofferdam.Digest }
