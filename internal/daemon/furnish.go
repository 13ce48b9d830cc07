package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"cofferdam/environment"
	"cofferdam/environment/image"
)

// furnish opens what boxes are made from. Images come by the gateways' dialer,
// which judges every address.
func (s *server) furnish(ctx context.Context) error {
	var err error
	if s.environments, err = environment.Open(filepath.Join(s.State, "environments")); err != nil {
		return err
	}
	e := s.Environments
	s.images, err = image.Open(image.Options{
		Dir: filepath.Join(s.State, "images"), Names: e.Images, Registries: e.Registries, Packages: e.Packages,
		Transport: &http.Transport{DialContext: s.dialer.DialContext, TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: time.Minute, MaxIdleConns: 8, IdleConnTimeout: time.Minute},
	})
	if err != nil {
		return err
	}
	return s.collect(ctx)
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
