package keeper

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Program is the keeper's own.
const Program = "cofferdam-keeper"

// Sisters are the programs of this project that a keeper starts.
func Sisters() []string { return []string{"cofferdam-runsc", "cofferdam-init"} }

// BuildOf names the build of the keeper in a folder and of what it starts:
// twelve hexadecimal digits, other ones whenever any of these programs is
// another. A keeper passes its own program, for that file may be another by now.
func BuildOf(dir, own string) (string, error) {
	if own == "" {
		own = filepath.Join(dir, Program)
	}
	paths := []string{own}
	for _, name := range Sisters() {
		paths = append(paths, filepath.Join(dir, name))
	}
	return Build(paths...)
}

// Build names the build of some programs together.
func Build(paths ...string) (string, error) {
	sum := sha256.New()
	for _, path := range paths {
		id, err := buildID(path)
		if err != nil {
			return "", fmt.Errorf("reading build of %s: %w", path, err)
		}
		fmt.Fprintf(sum, "%d %s", len(id), id)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

// buildID is what Go's linker wrote into a program, which differs as soon as
// anything in it does; of a file without, the digest.
func buildID(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if p, err := elf.NewFile(f); err == nil {
		if id := goNote(p); id != "" {
			return id, nil
		}
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// goNote reads the note of Go's linker: three lengths, the name "Go", the id.
func goNote(p *elf.File) string {
	s := p.Section(".note.go.buildid")
	if s == nil || s.Size > 4096 {
		return ""
	}
	data, err := s.Data()
	const header, name = 12, 4
	if err != nil || len(data) < header+name {
		return ""
	}
	n := int(binary.NativeEndian.Uint32(data[4:]))
	if n < 0 || n > len(data)-header-name {
		return ""
	}
	return string(data[header+name : header+name+n])
}
