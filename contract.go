package cofferdam

import (
	"fmt"
	"strings"
)

// Contract says what a task's work is about: what its agent may change and
// reach, however wide its policy is. It only narrows. A push that goes beyond its
// paths, or a call of a tool beyond its tools, is refused, also a harmless one, or
// marked for who reviews it. Tools are those of our own agent: those of others run
// in the box, where nobody sees them.
type Contract struct {
	Paths []string `json:"paths,omitempty"` // files, or folders with a slash at their end; none: any
	Hosts []string `json:"hosts,omitempty"` // as in TaskRequest.Allow, without presets; none: what policy allows
	Tools []string `json:"tools,omitempty"` // as in the section tool of a policy, such as own:read; none: what policy allows
	Mark  bool     `json:"mark,omitempty"`  // what goes beyond the paths or the tools passes, and is marked
}

// Bounds of a Contract. Source: docs/SPECIFICATION.md, "Scope of a task".
const (
	MaxContractPaths = 200
	MaxContractHosts = 200
	MaxContractTools = 200
	MaxContractPath  = 1024 // bytes of one path
)

// Check says what is wrong with the paths of c; "" if nothing is. What is wrong
// with a host or a tool, policy says.
func (c Contract) Check() string {
	switch {
	case len(c.Paths) > MaxContractPaths || len(c.Hosts) > MaxContractHosts || len(c.Tools) > MaxContractTools:
		return fmt.Sprintf("it names more than %d paths, %d hosts or %d tools", MaxContractPaths, MaxContractHosts, MaxContractTools)
	case c.Mark && len(c.Paths) == 0 && len(c.Tools) == 0:
		return "it names no path and no tool, so that nothing goes beyond it"
	}
	for _, p := range c.Paths {
		if why := badPath(p); why != "" {
			return fmt.Sprintf("path %.80q %s", p, why)
		}
	}
	return ""
}

// badPath says why p is no path as git has it, with a slash at the end of a
// folder; "" if it is one.
func badPath(p string) string {
	switch {
	case p == "" || len(p) > MaxContractPath:
		return fmt.Sprintf("is not 1 to %d bytes long", MaxContractPath)
	case strings.HasPrefix(p, "/"):
		return "begins with a slash; it is meant from the root of the repository"
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }):
		return "has a character that no path here has"
	case strings.ContainsAny(p, "*?["):
		return "has a pattern in it; name a folder with a slash at its end instead"
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(p, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return "has an empty part, or a dot for one"
		}
	}
	return ""
}

// Beyond returns those of paths that c does not have, byte by byte as git writes
// them; all that is in a folder of c it has.
func (c *Contract) Beyond(paths []string) []string {
	if c == nil || len(c.Paths) == 0 {
		return nil
	}
	var out []string
	for _, p := range paths {
		if !c.has(p) {
			out = append(out, p)
		}
	}
	return out
}

func (c *Contract) has(path string) bool {
	for _, p := range c.Paths {
		if path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}
