package microvm

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// modules are what a machine needs of Debian's cloud kernel, in the order in
// which they load; what a kernel has built in is not there as a file.
var modules = []string{
	"virtio_ring", "virtio", "virtio_mmio", "virtio_blk", "virtio_console", "failover", "net_failover", "virtio_net",
	"libcrc32c", "erofs", "overlay", "virtio-rng",
}

// maxKernel bounds what a kernel may unpack to.
const maxKernel = 256 << 20

// kernel is one that machines can start from.
type kernel struct {
	version string // "6.1.0-57-cloud-amd64"
	image   string // as installed
	modules string // folder of its modules; "": all it needs is built in
}

// findKernel returns the newest kernel below root, where a kernel's package has
// it: boot/vmlinuz-VERSION and lib/modules/VERSION. A file is a kernel by itself.
func findKernel(root string) (kernel, error) {
	info, err := os.Stat(root)
	if err != nil {
		return kernel{}, err
	}
	if !info.IsDir() {
		return kernel{version: filepath.Base(root), image: root}, nil
	}
	found, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*-cloud-*"))
	if err != nil || len(found) == 0 {
		return kernel{}, errors.Join(err, fmt.Errorf("no boot/vmlinuz-*-cloud-* below %s", root))
	}
	slices.Sort(found)
	k := kernel{image: found[len(found)-1]}
	k.version = strings.TrimPrefix(filepath.Base(k.image), "vmlinuz-")
	k.modules = filepath.Join(root, "lib", "modules", k.version)
	return k, nil
}

// moduleFiles are the files of the modules, in their order; more are those of
// the monitor's devices.
func (k kernel) moduleFiles(more []string) ([]string, error) {
	if k.modules == "" {
		return nil, nil
	}
	byName := map[string]string{}
	err := filepath.WalkDir(k.modules, func(path string, e os.DirEntry, err error) error {
		name, _, ok := strings.Cut(filepath.Base(path), ".ko")
		if err == nil && ok && e.Type().IsRegular() {
			byName[name] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var list []string
	for _, m := range slices.Concat(modules, more) {
		if path := byName[m]; path != "" {
			list = append(list, path)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no modules in %s", k.modules)
	}
	return list, nil
}

// unpacked returns the ELF image in a bzImage: a machine starts from it without
// unpacking it itself, which takes an emulated one a second. A kernel that is
// packed in a way we do not read is returned as it is.
func unpacked(b []byte) ([]byte, error) {
	if bytes.HasPrefix(b, []byte(elf.ELFMAG)) {
		return b, nil
	}
	const header = 0x250
	if len(b) < header || string(b[0x202:0x206]) != "HdrS" {
		return nil, errors.New("neither an ELF file nor a bzImage")
	}
	sectors := int(b[0x1f1])
	if sectors == 0 {
		sectors = 4 // as the boot protocol says
	}
	at := uint64((sectors+1)*512) + uint64(binary.LittleEndian.Uint32(b[0x248:]))
	size := uint64(binary.LittleEndian.Uint32(b[0x24c:]))
	if size < 8 || at+size > uint64(len(b)) {
		return nil, errors.New("a bzImage whose header lies about its payload")
	}
	payload := b[at : at+size-4] // the last four are its size unpacked
	var out []byte
	var err error
	switch {
	case bytes.HasPrefix(payload, []byte{0x02, 0x21, 0x4c, 0x18}):
		out, err = unpackLZ4(payload[4:])
	case bytes.HasPrefix(payload, []byte{0x1f, 0x8b}):
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(payload)); err == nil {
			out, err = io.ReadAll(io.LimitReader(z, maxKernel))
		}
	default:
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("unpacking kernel: %w", err)
	}
	if !bytes.HasPrefix(out, []byte(elf.ELFMAG)) {
		return nil, errors.New("unpacking kernel: what is in it is no ELF file")
	}
	return out, nil
}

var errLZ4 = errors.New("its LZ4 data is broken")

// unpackLZ4 reads the old frame format that the kernel's build uses: blocks of
// at most 8 MiB, each after its packed size.
func unpackLZ4(p []byte) ([]byte, error) {
	var out []byte
	for len(p) >= 4 {
		n := uint64(binary.LittleEndian.Uint32(p))
		if p = p[4:]; n > uint64(len(p)) {
			return nil, errLZ4
		}
		var err error
		if out, err = appendLZ4(out, p[:n]); err != nil {
			return nil, err
		}
		p = p[n:]
	}
	return out, nil
}

// appendLZ4 unpacks one block behind out; matches may not reach before it.
func appendLZ4(out, p []byte) ([]byte, error) {
	start := len(out)
	length := func(n int) (int, bool) {
		if n != 15 {
			return n, true
		}
		for len(p) > 0 {
			c := int(p[0])
			p = p[1:]
			if n += c; c != 255 {
				return n, true
			}
		}
		return 0, false
	}
	for len(p) > 0 {
		token := p[0]
		p = p[1:]
		n, ok := length(int(token >> 4))
		if !ok || n > len(p) || len(out)+n > maxKernel {
			return nil, errLZ4
		}
		out, p = append(out, p[:n]...), p[n:]
		if len(p) == 0 {
			return out, nil // the last sequence is literals only
		}
		if len(p) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(p))
		p = p[2:]
		n, ok = length(int(token & 15))
		if n += 4; !ok || back == 0 || back > len(out)-start || len(out)+n > maxKernel {
			return nil, errLZ4
		}
		for ; n > 0; n-- { // byte by byte: a match may overlap what it makes
			out = append(out, out[len(out)-back])
		}
	}
	return out, nil
}

// hashed names bytes by what is in them.
func hashed(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
