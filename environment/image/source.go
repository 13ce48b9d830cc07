package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"cofferdam"
)

// maxManifest bounds what a registry says of an image, in bytes. The standard
// asks registries to take manifests of 4 MiB.
const maxManifest = 4 << 20

// open finds an image by its source and returns it with the digest of its
// manifest. Only a source that the operator named may be a folder or a file.
func (s *Store) open(ctx context.Context, source string, named bool) (img v1.Image, d cofferdam.Digest, err error) {
	if path, ok := strings.CutPrefix(source, "layout:"); ok && named {
		img, err = fromLayout(path)
	} else if path, ok := strings.CutPrefix(source, "tarball:"); ok && named {
		if img, err = tarball.ImageFromPath(path, nil); err != nil {
			err = refused(source, "it cannot be read: "+err.Error(), err)
		}
	} else {
		img, err = s.fromRegistry(ctx, source)
	}
	if err != nil {
		return nil, "", err
	}
	hash, err := img.Digest()
	if err != nil || hash.Algorithm != "sha256" {
		return nil, "", refused(source, "it has no digest of SHA-256", err)
	}
	// What the configuration says of its size is all that bounds its reading.
	if m, err := img.Manifest(); err != nil || m.Config.Size > maxManifest {
		return nil, "", refused(source, fmt.Sprintf("its configuration is larger than %d bytes, or its manifest cannot be read", maxManifest), err)
	}
	if err := platform(img); err != nil {
		return nil, "", refused(source, err.Error(), nil)
	}
	return img, cofferdam.Digest("sha256:" + hash.Hex), nil
}

// platform refuses an image of another machine, whose programs do not run here.
func platform(img v1.Image) error {
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	if config.OS != "" && config.OS != "linux" || config.Architecture != "" && config.Architecture != runtime.GOARCH {
		return fmt.Errorf("it is for %.40s on %.40s, and this machine is linux on %s", config.OS, config.Architecture, runtime.GOARCH)
	}
	return nil
}

// fromLayout takes the only image of a layout folder, or the one for this machine.
func fromLayout(path string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return nil, refused("layout:"+path, "it is no layout folder: "+err.Error(), err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		return nil, refused("layout:"+path, "its index cannot be read", err)
	}
	var fit []v1.Hash
	for _, d := range m.Manifests {
		if d.MediaType.IsImage() && (d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH) {
			fit = append(fit, d.Digest)
		}
	}
	if len(fit) != 1 {
		return nil, refused("layout:"+path, fmt.Sprintf("it holds %d images for this machine, not one", len(fit)), nil)
	}
	img, err := index.Image(fit[0])
	if err == nil {
		var got v1.Hash
		if got, err = img.Digest(); err == nil && got != fit[0] {
			err = errors.New("its manifest is not the one that its index names")
		}
	}
	if err != nil {
		return nil, refused("layout:"+path, err.Error(), err)
	}
	return img, nil
}

// fromRegistry asks a registry that the operator allows. Its host has to be
// named: there is no registry that is meant when none is.
func (s *Store) fromRegistry(ctx context.Context, source string) (v1.Image, error) {
	host, _, found := strings.Cut(source, "/")
	if !found || !slices.Contains(s.o.Registries, host) {
		return nil, refused(source, "this server has no image of that name, and takes none from such a registry", nil)
	}
	ref, err := name.ParseReference(source, name.StrictValidation)
	if err != nil {
		return nil, refused(source, "it names no tag or digest: "+err.Error(), err)
	}
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuth(authn.Anonymous), remote.WithTransport(s.listed()),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return nil, refused(source, "the registry does not give it: "+err.Error(), err)
	}
	return img, nil
}

// listed lets requests pass to the operator's registries and to no other host,
// whatever a registry says of where its tokens or layers are.
func (s *Store) listed() http.RoundTripper {
	next := s.o.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !slices.Contains(s.o.Registries, r.URL.Host) {
			return nil, fmt.Errorf("%.200s is none of this server's registries", r.URL.Host)
		}
		resp, err := next.RoundTrip(r)
		if err == nil && !ofBlob(r) {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(resp.Body, maxManifest), resp.Body}
		}
		return resp, err
	})
}

var blobPath = regexp.MustCompile(`/blobs/sha256:[0-9a-f]{64}$`)

// ofBlob says whether a request is for a layer or a configuration, which are read
// up to their size: a redirected one is for what was asked for first.
func ofBlob(r *http.Request) bool {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	return blobPath.MatchString(r.URL.Path)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
