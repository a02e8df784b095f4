package member

import "slices"

// idSet is a small sorted set of IDs. It is a slice, as the order of a map is random and the
// machine must be deterministic.
type idSet []ID

// has reports whether id is in the set.
func (i idSet) has(id ID) bool {
	_, found := slices.BinarySearch(i, id)
	return found
}

// add adds id, which may be in the set already.
func (s *idSet) add(id ID) {
	if i, found := slices.BinarySearch(*s, id); !found {
		*s = slices.Insert(*s, i, id)
	}
}

// remove removes id, if it is in the set.
func (s *idSet) remove(id ID) {
	if i, found := slices.BinarySearch(*s, id); found {
		*s = slices.Delete(*s, i, i+1)
	}
}
