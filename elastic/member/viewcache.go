package member

import (
	"crypto/sha256"
	"sync"
)

// lookedUp is the number of members from which on a view has a table of ranks. With fewer members a
// linear search is as fast.
const lookedUp = 32

// lookup finds members of one view by ID. All copies of the view share it.
type lookup struct {
	ranks map[ID]int32
	none  []bool // false for each member; shared, never changed
}

// newLookup returns the table of members, or nil for few. If an ID occurs twice the lower rank
// counts.
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

// ownViews is the number of views that a machine keeps without Config.Views. Two suffice: a view
// that was computed when its change was accepted is not computed again when it is entered.
const ownViews = 2

// Views is a cache of recent views. Computing a view and its hash costs time and memory in
// proportion to the members. All machines of one process may share one cache (Config.Views). Its
// methods are safe for concurrent use.
type Views struct {
	// mu guards the fields below. make holds it while it computes a view.
	mu   sync.Mutex
	keep int           // capacity, in views
	next map[step]View // by step, and by hash alone
	line []step        // keys of next, the oldest first
}

// step is a key of the cache: the key of the view to which change leads from the view from or, if
// change is zero, of the view from itself.
type step struct {
	from   Hash
	change Hash
}

// NewViews returns a cache of keep views.
func NewViews(keep int) *Views {
	return &Views{keep: keep, next: make(map[step]View)}
}

// make returns the view that follows from by c, from the cache if the view is there. If v is nil make
// computes the view each time. make holds the lock while it computes, so that machines that apply
// one change at the same time compute the view once.
func (v *Views) make(from View, c Change) (View, error) {
	if v == nil {
		return from.apply(c)
	}
	// The hash of a view covers its lineage, so equal keys have equal results.
	key := step{from.hash, sha256.Sum256(appendChange(nil, c))}
	v.mu.Lock()
	defer v.mu.Unlock()
	if next, ok := v.next[key]; ok {
		return next, nil
	}
	next, err := from.apply(c)
	if err == nil {
		v.add(key, next)
	}
	return next, err
}

// known returns the cached view with a hash.
func (v *Views) known(hash Hash) (view View, ok bool) {
	if v == nil {
		return View{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	view, ok = v.next[step{from: hash}]
	return view, ok
}

// whole adds a view that was received whole, or returns the cached view with its hash.
func (v *Views) whole(view View) View {
	key := step{from: view.hash}
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.next[key]; ok {
		return known
	}
	view.views = v
	v.add(key, view)
	return view
}

// add adds a view under its step and under its hash. Beyond the capacity it removes the oldest
// views.
func (v *Views) add(key step, view View) {
	for _, k := range []step{key, {from: view.hash}} {
		if _, known := v.next[k]; known {
			continue
		}
		v.next[k] = view
		if v.line = append(v.line, k); len(v.line) > 2*v.keep {
			delete(v.next, v.line[0])
			v.line = v.line[1:]
		}
	}
}
