package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"
)

// Dial returns a client of the engine that stays good when the child is
// replaced: every connection asks anew where the present one listens.
func (e *Engine) Dial(ctx context.Context) (client.Client, error) {
	c, err := client.DialContext(ctx, client.Options{
		// No name to resolve: the dialer below knows where to go.
		HostPort:  "passthrough:///" + serverName,
		Namespace: Namespace,
		Identity:  "cofferdam-server",
		Logger:    sdklog.NewStructuredLogger(slog.New(quiet{e.o.Log.Handler()})),
		ConnectionOptions: client.ConnectionOptions{
			TLS: e.keys.client,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return e.dial(ctx)
			})},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("dialling the engine: %w", err)
	}
	return c, nil
}

// quiet lets only errors through: the SDK warns about every retry, and what
// matters of those is in our own log already.
type quiet struct{ slog.Handler }

// Enabled says whether a level is let through.
func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && q.Handler.Enabled(ctx, l)
}

// WithAttrs keeps the filter.
func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a)} }

// WithGroup keeps the filter.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
