package member

import (
	"crypto/sha256"
	"sync"
)

// lookedUp is from how many members on a view has a table of ranks: below, looking through
// them is as fast.
const lookedUp = 32

// lookup finds members of one view. All copies of the view share it.
type lookup struct {
	ranks map[ID]int32
	none  []bool // of each member, false
}

// newLookup makes the table of some members; the first of equal IDs counts.
func newLookup(members []Member) *lookup {
	if len(members) < lookedUp {
		return nil
	}
	l := &lookup{ranks: make(map[ID]int32, len(members)), none: make([]bool, len(members))}
	for i, m := range members {
		if _, twice := l.ranks[m.ID]; !twice {
			l.ranks[m.ID] = int32(i)
		}
	}
	return l
}

// ownViews is how many views a machine keeps that has not been given a Views: that of a
// change which it accepts is the one that it enters.
const ownViews = 2

// Views keeps views that were made of late, so that they are made once: to make one and its
// hash takes time and memory that grow with the members. All machines of one process may
// share one (Config.Views). Its methods are safe for concurrent use.
type Views struct {
	mu   sync.Mutex
	keep int
	next map[step]View
	line []step // keys of next, the oldest first
}

// step names the view to which a change leads.
type step struct {
	from   Hash
	change Hash
}

// NewViews keeps so many views.
func NewViews(keep int) *Views {
	return &Views{keep: keep, next: make(map[step]View)}
}

// make returns the view that follows v by c, and makes it unless it is there.
func (s *Views) make(v View, c Change) (View, error) {
	if s == nil {
		return v.apply(c)
	}
	key := step{v.hash, sha256.Sum256(appendChange(nil, c))}
	s.mu.Lock()
	defer s.mu.Unlock()
	if next, ok := s.next[key]; ok {
		return next, nil
	}
	next, err := v.apply(c)
	if err == nil {
		s.add(key, next)
	}
	return next, err
}

// known returns the view of a hash.
func (s *Views) known(hash Hash) (v View, ok bool) {
	if s == nil {
		return View{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok = s.next[step{from: hash}]
	return v, ok
}

// whole returns a view that was received whole, or the one that is there in its place.
func (s *Views) whole(v View) View {
	key := step{from: v.hash}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.next[key]; ok {
		return known
	}
	v.views = s
	s.add(key, v)
	return v
}

// add keeps a view under its step, and by itself.
func (s *Views) add(key step, v View) {
	for _, k := range []step{key, {from: v.hash}} {
		if _, known := s.next[k]; known {
			continue
		}
		s.next[k] = v
		if s.line = append(s.line, k); len(s.line) > 2*s.keep {
			delete(s.next, s.line[0])
			s.line = s.line[1:]
		}
	}
}
