// Package ledger assigns the microbatches of a step to the ranks.
//
// After a change of the members in the middle of a step, ranks hold microbatches that they have
// computed. Assign leaves these with their holders and divides the other microbatches. It is a pure
// function in integers, so all ranks compute the same assignment.
package ledger

import (
	"math/bits"
	"slices"
)

// Set is a set of microbatches of one step: a bitmap with 64 elements per word, microbatch 0 in the
// lowest bit of the first word. Sets that are compared or combined must have equal length; nil is
// empty.
type Set []uint64

// NewSet returns an empty set with room for the microbatches 0 to n-1.
func NewSet(n int) Set { return make(Set, (n+63)/64) }

// Has reports whether k is in the set; k may be any number.
func (s Set) Has(k int) bool { return k >= 0 && k/64 < len(s) && s[k/64]>>(k%64)&1 != 0 }

// Add adds k to the set. It panics if there is no room for k.
func (s Set) Add(k int) { s[k/64] |= 1 << (k % 64) }

// Remove removes k from the set. It panics if there is no room for k.
func (s Set) Remove(k int) { s[k/64] &^= 1 << (k % 64) }

// Len returns the number of microbatches in the set.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Clone returns a copy of the set.
func (s Set) Clone() Set { return slices.Clone(s) }

// Ranges returns the set as a minimal list of [first, end) ranges in ascending order.
func (s Set) Ranges() [][2]int {
	ranges := [][2]int{}
	for k := 0; k < 64*len(s); k++ {
		if !s.Has(k) {
			continue
		}
		if last := len(ranges) - 1; last >= 0 && ranges[last][1] == k {
			ranges[last][1]++
			continue
		}
		ranges = append(ranges, [2]int{k, k + 1})
	}
	return ranges
}

// Without returns the microbatches of s that are not in held, in ascending order.
func (s Set) Without(held Set) []int {
	var out []int
	for i, w := range s {
		if i < len(held) {
			w &^= held[i]
		}
		for ; w != 0; w &= w - 1 {
			out = append(out, 64*i+bits.TrailingZeros64(w))
		}
	}
	return out
}

// overlaps reports whether s and t have a microbatch in common.
func (s Set) overlaps(t Set) bool {
	for i := range min(len(s), len(t)) {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// within reports whether all microbatches of s are below n.
func (s Set) within(n int) bool {
	for i, w := range s {
		if w != 0 && 64*i+bits.Len64(w) > n {
			return false
		}
	}
	return true
}
