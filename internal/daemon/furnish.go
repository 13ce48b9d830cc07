package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"cofferdam"
	"cofferdam/environment"
	"cofferdam/environment/image"
)

// furnish opens what boxes are made from. Images come by the gateways' dialer,
// which judges every address.
func (s *server) furnish(ctx context.Context) error {
	var err error
	if s.environments, err = environment.Open(filepath.Join(s.State, "environments"), s.log); err != nil {
		return err
	}
	e := s.Environments
	s.images, err = image.Open(image.Options{
		Dir: filepath.Join(s.State, "images"), Names: e.Images, Registries: e.Registries, Packages: e.Packages, MaxBytes: e.MaxImages, Used: s.usedImages,
		Transport: &http.Transport{DialContext: s.dialer.DialContext, TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: time.Minute, MaxIdleConns: 8, IdleConnTimeout: time.Minute},
	})
	if err != nil {
		return err
	}
	return s.collect(ctx)
}

// askBoxes bounds how long is waited for what boxes have.
const askBoxes = 10 * time.Second

// usedImages are the paths of what boxes have at "/", those at rest too, and what
// the boxes had whose workspaces are kept.
func (s *server) usedImages() (paths []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askBoxes)
	defer cancel()
	boxes, err := s.boxes.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range boxes {
		paths = append(paths, b.Image)
	}
	kept, err := s.store.Workspaces(ctx)
	for _, w := range kept {
		if w.Removed.IsZero() {
			paths = append(paths, w.Image)
		}
	}
	return paths, err
}

// collect removes what the operator's bounds of age and size leave no place for.
func (s *server) collect(ctx context.Context) error {
	e := s.Environments
	if e.MaxAge == 0 && e.MaxSize == 0 {
		return nil
	}
	gone, err := s.environments.Prune(s.scope, e.MaxAge, e.MaxSize, time.Now())
	for _, g := range gone {
		s.log.InfoContext(ctx, "environment removed", slog.String("digest", string(g.Digest)), slog.String("name", g.Name))
	}
	return err
}

// kept is what boxes are made from, as the faces show it.
type kept struct {
	setups *environment.Cache
	images *image.Store
}

// CheckImage implements service.Environments.
func (k kept) CheckImage(name string) error { return k.images.Check(name) }

// Environments implements service.Environments.
func (k kept) Environments(scope cofferdam.Scope) []cofferdam.Environment {
	var all []cofferdam.Environment
	for _, e := range k.setups.List(scope) {
		all = append(all, word(e))
	}
	images, used := k.images.List(scope)
	for _, r := range images {
		all = append(all, cofferdam.Environment{
			Schema: "cofferdam/environment/v1", Digest: r.Digest, Kind: "image", Scope: scope, Name: r.Name, Source: r.Source,
			Size: r.Size, Created: r.Made, Used: used[r.Digest].UTC(),
		})
	}
	slices.SortStableFunc(all, func(a, b cofferdam.Environment) int { return b.Created.Compare(a.Created) })
	return all
}

func word(e environment.Entry) cofferdam.Environment {
	d := e.Definition
	return cofferdam.Environment{
		Schema: "cofferdam/environment/v1", Digest: e.Digest, Kind: "setup", Scope: d.Scope, Name: e.Name, Image: d.Image, Why: e.Why,
		Setup: d.Setup, Allow: d.Allow, Size: e.Size, Created: e.Created.UTC(), Used: e.Used.UTC(), Before: e.Before, Gone: e.Gone,
	}
}

// RemoveEnvironment implements service.Environments.
func (k kept) RemoveEnvironment(scope cofferdam.Scope, d cofferdam.Digest, why string) error {
	err := k.setups.Remove(scope, d, why)
	if err != nil && cofferdam.KindOf(err) == cofferdam.NotFound {
		return k.images.Remove(scope, d, time.Now())
	}
	return err
}

// RollbackEnvironment implements service.Environments.
func (k kept) RollbackEnvironment(scope cofferdam.Scope, d cofferdam.Digest, why string) error {
	return k.setups.Rollback(scope, d, why, time.Now())
}

// PruneEnvironments implements service.Environments. Images that a box may use
// stay; the size counts results of setups alone.
func (k kept) PruneEnvironments(scope cofferdam.Scope, oldest time.Duration, size int64) ([]cofferdam.Environment, error) {
	now := time.Now()
	setups, err := k.setups.Prune(scope, oldest, size, now)
	var gone []cofferdam.Environment
	for _, e := range setups {
		gone = append(gone, word(e))
	}
	if err != nil || oldest == 0 {
		return gone, err
	}
	for _, e := range k.Environments(scope) {
		if e.Kind != "image" || now.Sub(e.Created) <= oldest {
			continue
		}
		switch err := k.images.Remove(scope, e.Digest, now); {
		case err == nil:
			gone = append(gone, e)
		case cofferdam.KindOf(err) != cofferdam.Conflict:
			return gone, err
		}
	}
	return gone, nil
}
