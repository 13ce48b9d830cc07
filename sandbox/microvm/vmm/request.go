package vmm

import (
	"context"
	"net/http"
	"time"
)

// Request is one call of a monitor's API.
type Request struct {
	Method, Path string
	Body         any           // sent as JSON; nil: none
	Patience     time.Duration // 0: that of most calls
}

// Put is the request that most calls are.
func Put(path string, body any) Request {
	return Request{Method: http.MethodPut, Path: path, Body: body}
}

// OfMemory is a request that writes or reads a machine's memory.
func OfMemory(path string, body any) Request {
	return Request{Method: http.MethodPut, Path: path, Body: body, Patience: MemoryPatience}
}

// Ask makes calls in their order, up to the first that fails.
func (a *API) Ask(ctx context.Context, list ...Request) error {
	for _, r := range list {
		if err := a.Call(ctx, r.Method, r.Path, r.Body, nil, r.Patience); err != nil {
			return err
		}
	}
	return nil
}

// Rates of one machine, so that it leaves something for its neighbours: each disk,
// and the network, each direction by itself where a monitor tells them apart.
const (
	DiskRate    = 512 << 20 // bytes a second
	NetworkRate = 256 << 20 // bytes a second
)

// Bucket is a rate as both APIs have it: so many bytes in so many milliseconds.
type Bucket struct {
	Size   int64 `json:"size"`
	Refill int64 `json:"refill_time"` // milliseconds
}

// Limiter bounds a disk or a network, as both APIs have it.
type Limiter struct {
	Bandwidth Bucket `json:"bandwidth"`
}

// PerSecond is a bound in bytes a second.
func PerSecond(bytes int64) Limiter {
	return Limiter{Bucket{Size: bytes, Refill: time.Second.Milliseconds()}}
}
