package cofferdam

import "time"

// Environment is something that boxes are made from and that is kept: the
// result of a setup, or an image.
type Environment struct {
	Schema string `json:"schema"` // cofferdam/environment/v1
	Digest Digest `json:"digest"`
	Kind   string `json:"kind"` // "setup" or "image"
	Scope
	Name    string    `json:"name"`             // of a setup: repository/agent; of an image: as it was asked for
	Image   string    `json:"image,omitempty"`  // of a setup
	Source  string    `json:"source,omitempty"` // of an image: where it came from
	Why     string    `json:"why,omitempty"`    // it was made, and none was found
	Setup   []string  `json:"setup,omitempty"`  // its commands
	Allow   []string  `json:"allow,omitempty"`  // what they could reach
	Size    int64     `json:"size"`             // bytes
	Created time.Time `json:"created"`
	Used    time.Time `json:"used,omitzero"`   // last
	Before  time.Time `json:"before,omitzero"` // when the one was made that a rollback goes back to
	Gone    string    `json:"gone,omitempty"`  // why only the one before is there; "" if it is itself
}

// PruneRequest says which environments are to go. Zero fields bound nothing.
type PruneRequest struct {
	Age  float64 `json:"age,omitempty"`  // seconds: those made before that go
	Size int64   `json:"size,omitempty"` // bytes: those unused for longest go, until no more than this is left
}
