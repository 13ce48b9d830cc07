package image

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cofferdam"
)

// DefaultMaxBytes is what all images together may take, where the operator says
// nothing: four of the largest.
const DefaultMaxBytes = 64 << 30

func (o Options) max() int64 { return cmp.Or(o.MaxBytes, DefaultMaxBytes) }

// makeRoom removes images of any project, those unused for longest first and
// none that was used within InUse, until all together fit. It returns how many
// bytes are left, which can be less than none.
func (s *Store) makeRoom(now time.Time) (left int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type kept struct {
		dir  string
		used time.Time
		Record
	}
	projects, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return 0, unavailable(s.o.Dir, err)
	}
	var all []kept
	left = s.o.max()
	for _, p := range projects {
		list, used := s.List(cofferdam.Scope{Project: cofferdam.ProjectID(p.Name())})
		for _, r := range list {
			all = append(all, kept{filepath.Join(s.o.Dir, p.Name()), used[r.Digest], r})
			left -= r.Size
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, k := range all {
		if left >= 0 || now.Sub(k.used) < InUse {
			break
		}
		if err := s.remove(k.dir, k.Digest); err != nil {
			return left, err
		}
		left += k.Size
	}
	return left, nil
}
