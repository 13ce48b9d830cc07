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

// whose names the image of a path below any spelling of the store's folder: by its
// project and digest.
func whose(root string) string {
	dir, project := filepath.Dir(root), filepath.Dir(filepath.Dir(root))
	return filepath.Join(filepath.Base(project), filepath.Base(dir))
}

// held returns which images a box or a kept workspace has.
func (s *Store) held() (map[string]bool, error) {
	if s.o.Used == nil {
		return nil, nil
	}
	paths, err := s.o.Used()
	held := map[string]bool{}
	for _, path := range paths {
		held[whose(path)] = true
	}
	return held, err
}

// makeRoom removes images of any project, those unused for longest first and
// none that was used within InUse or that anybody has, until all together fit. It
// returns how many bytes are left, which can be less than none.
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
	all = slices.DeleteFunc(all, func(k kept) bool { return now.Sub(k.used) < InUse })
	if left >= 0 || len(all) == 0 {
		return left, nil
	}
	held, err := s.held()
	if err != nil { // then none is known to be free; whoever needs room is told that there is none
		return left, nil
	}
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, k := range all {
		if left >= 0 {
			break
		}
		if held[whose(rootOf(k.dir, k.Digest))] {
			continue
		}
		if err := s.remove(k.dir, k.Digest); err != nil {
			return left, err
		}
		left += k.Size
	}
	return left, nil
}
