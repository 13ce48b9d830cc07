package main

import (
	"os"
	"path/filepath"
	"testing"

	"cofferdam/sandbox/keeper"
)

// TestKernelBesideThePrograms: a keeper that is told of no kernel has the one that
// lies beside its program, though the programs it starts are in its state folder.
func TestKernelBesideThePrograms(t *testing.T) {
	p := newPlace(t)
	bin := t.TempDir()
	for _, name := range append(keeper.Sisters(), keeper.Program) {
		if err := os.Link(filepath.Join(p.bin, name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	boot := filepath.Join(bin, "kernel", "boot")
	if err := os.MkdirAll(boot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(boot, "vmlinuz-6.1.0-1-cloud-amd64"), []byte("a kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.bin = bin
	p.start(t)
	if data, err := os.ReadFile(filepath.Join(p.state, pinned, "kernel", "boot", "vmlinuz-6.1.0-1-cloud-amd64")); err != nil || string(data) != "a kernel" {
		t.Errorf("the kernel where its driver looks for it: %q, %v", data, err)
	}
}
