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

// held returns which images a box or a kept workspace has. It asks others, who may
// take long: s.mu is not held. Who gets an image after that has looked it up within
// InUse, which keeps it.
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

// kept is an image of any project.
type kept struct {
	dir  string // of the project
	used time.Time
	Record
}

// unused returns the images that were not used within InUse, those unused for
// longest first, and how many bytes all images leave, which can be less than none.
func (s *Store) unused(now time.Time) (all []kept, left int64, err error) {
	projects, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return nil, 0, unavailable(s.o.Dir, err)
	}
	left = s.o.max()
	for _, p := range projects {
		list, used := s.List(cofferdam.Scope{Project: cofferdam.ProjectID(p.Name())})
		for _, r := range list {
			left -= r.Size
			if now.Sub(used[r.Digest]) >= InUse {
				all = append(all, kept{filepath.Join(s.o.Dir, p.Name()), used[r.Digest], r})
			}
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	return all, left, nil
}

// makeRoom removes images of any project, those unused for longest first and
// none that was used within InUse or that anybody has, until all together fit. It
// returns how many bytes are left, which can be less than none.
func (s *Store) makeRoom(now time.Time) (left int64, err error) {
	all, left, err := s.unused(now)
	if err != nil || left >= 0 || len(all) == 0 {
		return left, err
	}
	held, err := s.held()
	if err != nil { // then none is known to be free; whoever needs room is told that there is none
		return left, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if all, left, err = s.unused(now); err != nil { // one may have been looked up meanwhile
		return left, err
	}
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
