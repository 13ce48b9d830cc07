package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives/timestamp"
	schema "go.temporal.io/server/schema/sqlite"
)

var errTaken = errors.New("another engine uses this folder")

// retentionHours is how long the engine remembers workflows that have ended. A
// name that was used within it cannot be taken for a fresh one by mistake.
const retentionHours = 14 * 24

// takeDir makes the folder and locks it: two servers on one SQLite file would
// both start and spoil it silently. The lock goes with the process.
func takeDir(dir string) (*os.File, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("opening engine folder %q: not an absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making engine folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening engine folder: %w", err)
	}
	for end := time.Now().Add(lockPatience); ; time.Sleep(lockPause) {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return f, nil
		}
		if time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, errTaken)
		}
	}
}

// How long a lock is waited for: the engine of a server that was killed notices
// within milliseconds that it is alone, and is gone.
const (
	lockPatience = 3 * time.Second
	lockPause    = 50 * time.Millisecond
)

// database returns the settings of the engine's file, made ready for use. The
// schema knows no migrations, so each version of the engine has a file of its
// own and drops those of others.
func database(s Settings) (*config.SQL, error) {
	path := filepath.Join(s.Dir, "temporal-"+headers.ServerVersion+".db")
	old, err := filepath.Glob(filepath.Join(s.Dir, "temporal-*"))
	if err != nil {
		return nil, err
	}
	for _, f := range old {
		keep := f == path || f == path+"-wal" || f == path+"-shm"
		if keep && !s.Fresh {
			continue
		}
		if err := os.Remove(f); err != nil {
			return nil, fmt.Errorf("dropping an old engine file: %w", err)
		}
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := create(s, path); err != nil {
			return nil, err
		}
	}
	cfg := settingsOf(path)
	cfg.ConnectAttributes["journal_mode"] = "wal"
	return cfg, nil
}

// create makes the file under another name first, so that a half-made one is
// never found.
func create(s Settings, path string) error {
	half := path + ".new"
	cfg := settingsOf(half)
	if err := schema.SetupSchema(cfg); err != nil {
		return fmt.Errorf("making engine schema: %w", err)
	}
	ns, err := schema.NewNamespaceConfig(clusterName, s.Namespace, false, nil)
	if err != nil {
		return fmt.Errorf("describing engine namespace: %w", err)
	}
	ns.Detail.Config.Retention = timestamp.DurationFromHours(retentionHours)
	if err := schema.CreateNamespaces(cfg, ns); err != nil {
		return fmt.Errorf("making engine namespace: %w", err)
	}
	if err := os.Chmod(half, 0o600); err != nil {
		return err
	}
	return os.Rename(half, path)
}

func settingsOf(path string) *config.SQL {
	return &config.SQL{
		PluginName: sqlite.PluginName, DatabaseName: path,
		ConnectAttributes: map[string]string{
			"mode": "rwc", "synchronous": "FULL", "busy_timeout": "10000",
		},
		// One connection: SQLite has one writer, and more only wait for it.
		MaxConns: 1, MaxIdleConns: 1,
	}
}
