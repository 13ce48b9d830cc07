package local

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cofferdam"
	"cofferdam/internal/local/network"
)

// rootsFiles are where Debian, Ubuntu and Alpine, and a Mac, keep the roots that
// the machine trusts.
var rootsFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"}

// maxIndex bounds the file that lists what is in a folder of trust.
const maxIndex = 64 << 10

// trust is how programs in a box come to trust the gateways, and what git is
// told. Its folder can be read in the box.
type trust struct {
	dir  string
	over map[string]string // a file of the host, and what is seen in its place
	env  []string
}

// trustIndex is what is kept of a trust.
type trustIndex struct {
	Bundle string            `json:"bundle"`
	Names  []string          `json:"names"` // variables that name it
	Over   map[string]string `json:"over"`
}

// trusted returns the files by which programs in a box trust the gateways. To
// make them takes longer than a whole run, so they are kept for as long as the
// roots of this machine, the authority and the caller's settings of git are what
// they were.
func (s state) trusted(ctx context.Context, g network.Gateways, getenv func(string) string) (trust, error) {
	roots := getenv("SSL_CERT_FILE")
	for _, file := range rootsFiles {
		if _, err := os.Stat(file); roots == "" && err == nil {
			roots = file
		}
	}
	if roots == "" {
		roots = rootsFiles[0]
	}
	if _, err := os.Stat(roots); err != nil {
		return trust{}, &cofferdam.Error{
			Op: "local.Run", Kind: cofferdam.Unavailable, Subject: "file " + roots, Reason: plain(err),
			Hint: "apt-get install ca-certificates", Err: err,
		}
	}
	settings := gitSettings(getenv)
	ca, err := stamp(roots), error(nil)
	folder := func() string {
		authority := stamp(s.path("keys", network.CAFile))
		sum := sha256.Sum256([]byte(strings.Join(append([]string{trustForm, ca, authority}, stamps(settings)...), "\n")))
		return s.path("trust", fmt.Sprintf("%x", sum[:16]))
	}
	t, err := readTrust(folder())
	if err == nil {
		return t, nil
	}
	text, err := os.ReadFile(roots)
	if err != nil {
		return trust{}, s.unusable(err)
	}
	made, err := g.Trust(ctx, s.path("keys"), text)
	if err != nil {
		return trust{}, placed(s.path("keys"), elsewhere, err)
	}
	dir := folder() // the authority may be new
	if err = s.makeTrust(dir, made, settings); err == nil {
		t, err = readTrust(dir)
	}
	if err != nil {
		return trust{}, s.unusable(err)
	}
	return t, nil
}

// trustForm is that of what is kept of a trust: one of another release is made anew.
const trustForm = "2"

// stamp says which state of a file was seen; "" if there is none.
func stamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
}

func stamps(paths []string) []string {
	var all []string
	for _, p := range paths {
		all = append(all, stamp(p))
	}
	return all
}

func readTrust(dir string) (trust, error) {
	f, err := os.Open(filepath.Join(dir, "index.json"))
	if err != nil {
		return trust{}, err
	}
	defer f.Close()
	var x trustIndex
	if err := json.NewDecoder(io.LimitReader(f, maxIndex)).Decode(&x); err != nil {
		return trust{}, err
	}
	t := trust{dir: dir, over: x.Over, env: []string{"GIT_CONFIG_SYSTEM=" + filepath.Join(dir, "gitconfig")}}
	for _, name := range x.Names {
		t.env = append(t.env, name+"="+x.Bundle)
	}
	return t, nil
}

// makeTrust makes dir in one step; the folders of former roots are removed. A
// run that still uses one of those has opened it already.
func (s state) makeTrust(dir string, made network.Trust, settings []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	old := list(filepath.Dir(dir))
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	err = fillTrust(temp, dir, made, settings)
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		_, there := readTrust(dir)
		if there != nil {
			there = err
		}
		return errors.Join(there, os.RemoveAll(temp)) // nil: another run made it first
	}
	for _, e := range old {
		_ = os.RemoveAll(filepath.Join(filepath.Dir(dir), e.Name())) // the next run with new roots tries again
	}
	return nil
}

// fillTrust writes into temp what will be in dir. What a box sees in the place
// of a file of the host is only what the host has.
func fillTrust(temp, dir string, made network.Trust, settings []string) error {
	x := trustIndex{Names: made.Names, Over: map[string]string{}}
	at := map[string]string{}
	for i, f := range made.Files {
		if f.Link != "" {
			continue
		}
		name := strconv.Itoa(i)
		if err := os.WriteFile(filepath.Join(temp, name), f.Data, 0o644); err != nil {
			return err
		}
		at[f.Path] = filepath.Join(dir, name)
	}
	x.Bundle = at[made.Bundle]
	for _, f := range made.Files {
		from := at[f.Path]
		if f.Link != "" {
			from = at[f.Link]
		}
		real, err := filepath.EvalSymlinks(f.Path)
		if err != nil || from == "" {
			continue
		}
		if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() {
			x.Over[real] = from
		}
	}
	index, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(temp, "index.json"), index, 0o644),
		os.WriteFile(filepath.Join(temp, "gitconfig"), gitIdentity(settings), 0o644), os.Chmod(temp, 0o755))
}
