package kernel

import "fmt"

// Copying says how to copy bytes that go from one core to another. None of it changes what is
// copied; the zero value copies as Go does.
type Copying struct {
	// Past writes past the caches. That is for destinations which as a whole do not fit the
	// caches and are not soon read again, though each copy may be of a block of them: without
	// it such a block is read from memory before it is overwritten. For all others it is
	// slower, often several times.
	NonTemporal bool
	// Claim takes the cache lines of the source away from other cores while they are read,
	// for whoever writes there next on this one: it would wait for each of them.
	Prefetchw bool
	// Next is what this core reads after the copy: as much of each as is copied is fetched
	// meanwhile into its second cache. While bytes go to memory others can come from there.
	Next [2][]byte
}

// Copy copies src to dst, which must have its length and not overlap it.
func (c *Copying) Copy(dst, src []byte) { c.copy(levelHere(), dst, src) }

func (c *Copying) copy(l level, dst, src []byte) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("kernel: Copy: %d bytes to %d", len(src), len(dst)))
	}
	if !c.NonTemporal && !c.Prefetchw || !copyVectors(l, c, dst, src) {
		copy(dst, src)
	}
}
