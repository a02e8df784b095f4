package kernel

import "fmt"

// Copying holds the options for copying bytes between cores that share memory. The options affect
// only its speed. The zero value copies as the built-in copy does.
type Copying struct {
	// NonTemporal writes by non-temporal stores, which bypass the caches. It is for destinations
	// that do not fit the caches and are not read again soon: there an ordinary store would first
	// read the cache line from memory. The destination as a whole counts; a single copy may be a
	// small block of it. For other destinations non-temporal stores are slower, often several
	// times.
	NonTemporal bool
	// Prefetchw takes ownership of the cache lines of the source while they are read (PREFETCHW).
	// It is for a source that this core writes next: the write then needs no cache-line transfer.
	Prefetchw bool
	// Next is memory that this core reads after the copy. While the copy waits for stores to
	// memory, it prefetches bytes of each of these slices into the second-level cache, as many from
	// each as it copies.
	Next [2][]byte
}

// Copy copies src to dst. They must have the same length and must not overlap. It panics if the
// lengths differ.
func (c *Copying) Copy(dst, src []byte) { c.copy(levelHere(), dst, src) }

// copy is Copy at a given level of instructions.
func (c *Copying) copy(l level, dst, src []byte) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("kernel: Copy: lengths differ: src has %d bytes, dst %d", len(src), len(dst)))
	}
	// The assembly is needed for the options only.
	if !c.NonTemporal && !c.Prefetchw || !copyVectors(l, c, dst, src) {
		copy(dst, src)
	}
}
