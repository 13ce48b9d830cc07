package cloudhypervisor

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/microvm/vmm"
)

// Names of the files that the monitor saves a machine in.
const (
	configFile = "config.json"
	stateFile  = "state.json"
	memoryFile = "memory-ranges"
)

// Bounds of what is read of them; seen in descriptions are some 1 KiB and 200 KiB.
const (
	maxConfig = 1 << 20
	maxState  = 64 << 20
)

// pack makes two files of the three that a monitor has left in dir: length of the
// configuration (u64, big endian), configuration and state, and the memory. The
// monitor may have left anything there: a link, or a pipe, is not followed.
func pack(dir string, to vmm.Saved) error {
	config, err := readPlain(filepath.Join(dir, configFile), maxConfig)
	if err != nil {
		return err
	}
	if err := checkConfig(config); err != nil {
		return err
	}
	state, err := readPlain(filepath.Join(dir, stateFile), maxState)
	if err != nil {
		return err
	}
	head := append(binary.BigEndian.AppendUint64(nil, uint64(len(config))), config...)
	if err := os.WriteFile(to.State, append(head, state...), 0o444); err != nil {
		return err
	}
	src, err := openPlain(filepath.Join(dir, memoryFile))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to.Memory, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Chmod(0o444), dst.Close())
}

// unpack is the reverse, for the monitor that loads: state and configuration; the
// memory is shown to it where it lies.
func unpack(state, dir string) error {
	data, err := readPlain(state, 8+maxConfig+maxState)
	if err != nil {
		return err
	}
	if len(data) < 8 || binary.BigEndian.Uint64(data) > uint64(len(data)-8) {
		return fmt.Errorf("%s is no saved machine of Cloud Hypervisor", filepath.Base(state))
	}
	n := binary.BigEndian.Uint64(data)
	config, rest := data[8:8+n], data[8+n:]
	if err := checkConfig(config); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, configFile), config, 0o444), os.WriteFile(filepath.Join(dir, stateFile), rest, 0o444))
}

// checkConfig refuses a configuration that the monitor has written and that would
// take a wall from the next one.
func checkConfig(data []byte) error {
	var c struct {
		Landlock bool             `json:"landlock_enable"`
		Networks []network        `json:"net"`
		Disks    []disk           `json:"disks"`
		Devices  []map[string]any `json:"devices"`
		FS       []map[string]any `json:"fs"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("the saved machine's configuration: %w", err)
	}
	switch {
	case !c.Landlock:
		return errors.New("the saved machine's configuration turns Landlock off")
	case len(c.Networks) != 1 || c.Networks[0].TAP != vmm.TAP:
		return errors.New("the saved machine's configuration has another network")
	case len(c.Devices)+len(c.FS) > 0:
		return errors.New("the saved machine's configuration has devices that it was not given")
	}
	for _, d := range c.Disks {
		if d.Path != inDisk(d.Serial) || d.Type != "" && d.Type != "Raw" {
			return fmt.Errorf("the saved machine's configuration has a disk %.80q of type %.20q", d.Path, d.Type)
		}
	}
	return nil
}

// openPlain opens a file that is no link, pipe or device.
func openPlain(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no file", filepath.Base(path)), f.Close())
	}
	return f, nil
}

// readPlain reads one of at most limit bytes.
func readPlain(path string, limit int64) ([]byte, error) {
	f, err := openPlain(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", filepath.Base(path), limit)
	}
	return data, err
}

// empty removes what the monitor has left.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
