package process

import (
	"cofferdam/sandbox"
	"cofferdam/sandbox/wall"
)

// runSize is for sockets and pid files.
const runSize = 8 << 20

// addFile plans a file with its bytes, or a link.
func addFile(p *wall.Plan, f sandbox.File) {
	if f.Link != "" {
		p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.Link, To: f.Path, From: f.Link})
		return
	}
	p.Mounts = append(p.Mounts, wall.Mount{Kind: wall.File, To: f.Path, Mode: uint32(f.Perm()), At: int64(len(p.Data)), Size: int64(len(f.Data))})
	p.Data = append(p.Data, f.Data...)
}
