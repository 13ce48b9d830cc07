package environment

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"cofferdam"
	"cofferdam/sandbox"
)

// ImageWant says which image a box wants at "/".
type ImageWant struct {
	Name     string   // "" for the host's programs
	Operator bool     // a person names it in a task; a repository does otherwise
	Packages []string // of DebianImage
}

// Image is what a box has at "/".
type Image struct {
	Name   string           // as it was asked for
	Path   string           // for a box: sandbox.HostImage or an absolute folder
	Digest cofferdam.Digest // of what it holds, as far as that can be known
}

// LocalImage finds the images that need no preparation: the host's programs,
// and, where a person names it, a folder.
func LocalImage(w ImageWant) (Image, error) {
	if w.Name == "" || w.Name == sandbox.HostImage {
		return Image{Name: sandbox.HostImage, Path: sandbox.HostImage, Digest: stamp("/etc/os-release", "/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed")}, nil
	}
	if filepath.IsAbs(w.Name) && w.Operator {
		return Image{Name: w.Name, Path: w.Name, Digest: stamp(w.Name, filepath.Join(w.Name, "etc"), filepath.Join(w.Name, "usr"))}, nil
	}
	return Image{}, &cofferdam.Error{
		Op: "environment.Image", Kind: cofferdam.Invalid, Subject: "image " + w.Name, Reason: "this server has no image of that name",
		Hint: "its operator names images and registries in the table [environments] of the configuration file; leave the image away for the host's programs",
	}
}

// stamp changes whenever one of the files is written: a digest of times and
// sizes, since reading all that is below would take longer than most setups.
func stamp(paths ...string) cofferdam.Digest {
	h := sha256.New()
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(h, "%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return cofferdam.DigestOfSum([32]byte(h.Sum(nil)))
}
