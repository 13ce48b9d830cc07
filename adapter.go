package cofferdam

// Adapter is a coding agent that tasks may name.
type Adapter struct {
	Schema    string    `json:"schema"` // cofferdam/agent/v1
	Name      string    `json:"name"`
	Title     string    `json:"title"`
	Version   string    `json:"version,omitempty"`
	Providers []string  `json:"providers"` // protocols it speaks to a model, the preferred first; empty: it calls none
	Place     string    `json:"place"`     // where it runs: box or server
	Setup     []string  `json:"setup"`     // shell commands that install it
	Reaches   []string  `json:"reaches"`   // what its installation may reach: HOST[:PORT] or preset:NAME
	Command   []string  `json:"command"`   // its command line, as a template; shell text is one item
	Resumes   bool      `json:"resumes"`   // it can be told something while it runs, and goes on after it was ended
	Reader    string    `json:"reader,omitempty"`
	Contacts  []Contact `json:"contacts"`        // besides the model; all closed
	Tools     []string  `json:"tools,omitempty"` // that policy and a task's scope know: those of our own agent alone
	Added     bool      `json:"added"`           // from the operator's folder, not one that comes with the program
}

// Contact is a host that an agent would connect to by itself, and the
// setting that keeps it from that.
type Contact struct {
	Host   string `json:"host"`
	Why    string `json:"why"`
	Closed string `json:"closed"`
}
