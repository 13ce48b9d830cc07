package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"cofferdam/sandbox/keeper"
)

// snapshotFolders are the folders of a state folder whose content outlives a keeper and
// belongs to one at a time. Workspaces are not among them: keepers share those.
func snapshotFolders() []string {
	return []string{"snapshots", filepath.Join("process", "snapshots"), filepath.Join("microvm", "snapshot")}
}

// inherit takes over what the other keepers of the installation leave, as soon
// as each has ended: at an upgrade that is when its last box has.
func (s settings) inherit(ctx context.Context, log *slog.Logger) {
	for _, other := range keeper.Slots("", s.kept) {
		if other.State == s.state {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(other.State, keeper.LockFile), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // there never was one
		}
		if err == nil && unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			s.take(ctx, log, other.State, lock)
			continue
		}
		go func() { // ends with that keeper, or with this process
			if err == nil {
				err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
			}
			if err != nil {
				log.WarnContext(ctx, "waiting for the end of another keeper", slog.Any("err", err))
				return
			}
			s.take(ctx, log, other.State, lock)
		}()
	}
}

// take moves the snapshots of a keeper that has ended, whose state
// folder is locked, to this one's. What is half made stays: nobody can use it.
func (s settings) take(ctx context.Context, log *slog.Logger, from string, lock *os.File) {
	defer lock.Close()
	for _, folder := range snapshotFolders() {
		list, err := os.ReadDir(filepath.Join(from, folder))
		if err != nil {
			continue // it has none
		}
		for _, e := range list {
			old, now := filepath.Join(from, folder, e.Name()), filepath.Join(s.state, folder, e.Name())
			if strings.HasSuffix(old, ".new") || !e.IsDir() {
				continue
			}
			err := os.MkdirAll(filepath.Dir(now), 0o700)
			if err == nil {
				err = unix.Renameat2(unix.AT_FDCWD, old, unix.AT_FDCWD, now, unix.RENAME_NOREPLACE)
			}
			if err != nil {
				log.WarnContext(ctx, "taking over a snapshot", slog.String("from", old), slog.Any("err", err))
				continue
			}
			log.InfoContext(ctx, "a snapshot was taken over", slog.String("from", old))
		}
	}
}
