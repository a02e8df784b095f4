package collective

import (
	"math/bits"
	"sync"
)

// pools is scratch memory for reuse: pools[i] has slices of 1<<i words, as *[]uint64. A power of
// two wastes at most half of a slice, and calls of similar lengths share the same memory.
type pools [64]sync.Pool

// get returns at least n words of unspecified value.
func (p *pools) get(n int) *[]uint64 {
	class := sizeClass(n)
	if w, ok := p[class].Get().(*[]uint64); ok {
		return w
	}
	words := make([]uint64, 1<<class)
	return &words
}

// put returns a result of get to the pool. The caller must not use it any more.
func (p *pools) put(words *[]uint64) { p[sizeClass(len(*words))].Put(words) }

// sizeClass returns the exponent of the smallest power of two that is at least n.
func sizeClass(n int) int { return bits.Len(uint(max(n, 1) - 1)) }
