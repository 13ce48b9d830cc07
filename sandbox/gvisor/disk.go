package gvisor

import (
	"context"

	"cofferdam/sandbox/mount"
)

// inodes is how many files and folders a workspace may have.
func inodes(size int64) int64 { return size / mount.BytesPerInode(size) }

// makeImage makes an image for what does not outlive its box.
func makeImage(ctx context.Context, path string, size int64) error {
	return mount.Make(ctx, path, size, false)
}
