package kernel

import (
	"fmt"

	"github.com/elrun/elrun/dtype"
)

// AddAll adds vectors in one pass: dst[k][i] = from[0][i] + from[1][i] + ... for every k, added
// from left to right. Integers wrap around. Float16 and BFloat16 are added in float32 and rounded
// once at the end, so the result is more exact than a chain of Add and may differ from it.
//
// There must be at least one vector in dst and in from, all of the same length, or AddAll panics.
// Each vector of dst may also be in the list from; otherwise no written vector may overlap another
// vector.
//
// nonTemporal is the number of vectors at the end of dst that are not read again soon and do not
// fit the caches. Where possible these are written by non-temporal stores, which do not read the
// cache lines from memory first. Non-temporal stores are possible if all vectors of dst start at
// the same offset in a cache line.
func AddAll[T dtype.Number](dst, from [][]T, nonTemporal int) {
	addAll(levelHere(), dst, from, nonTemporal)
}

// addAll is AddAll at a given level of instructions.
func addAll[T dtype.Number](l level, dst, from [][]T, nonTemporal int) {
	if len(from) == 0 || len(dst) == 0 {
		panic(fmt.Sprintf("kernel: AddAll: %d vectors to add into %d, want at least one of each", len(from), len(dst)))
	}
	n := len(dst[0])
	// The assembly reads len(dst[0]) elements of every vector, so it would read a shorter vector
	// past its end.
	for i, v := range from {
		if len(v) != n {
			panic(fmt.Sprintf("kernel: AddAll: lengths differ: dst[0] has %d elements, from[%d] has %d", n, i, len(v)))
		}
	}
	for i, v := range dst {
		if len(v) != n {
			panic(fmt.Sprintf("kernel: AddAll: lengths differ: dst[0] has %d elements, dst[%d] has %d", n, i, len(v)))
		}
	}
	if sumVectors(l, dst, from, nonTemporal) {
		return
	}
	addAllLoop(dst, from)
}

// addAllLoop is AddAll in Go.
func addAllLoop[T dtype.Number](dst, from [][]T) {
	if isHalf[T]() {
		addAllHalf(dst, from)
		return
	}
	// Add in blocks, so that the sum is still in the first-level cache when the next vector is
	// added. Write to dst last, as it may be one of the added vectors.
	var part [block]T
	for i := 0; i < len(dst[0]); i += block {
		n := min(block, len(dst[0])-i)
		copy(part[:n], from[0][i:])
		for _, v := range from[1:] {
			add(part[:n], part[:n], v[i:i+n])
		}
		for _, d := range dst {
			copy(d[i:], part[:n])
		}
	}
}

// addAllHalf is addAllLoop for Float16 and BFloat16, in float32.
func addAllHalf[T dtype.Number](dst, from [][]T) {
	var sum, x [block]float32
	for i := 0; i < len(dst[0]); i += block {
		n := min(block, len(dst[0])-i)
		widen(sum[:n], from[0][i:i+n])
		for _, v := range from[1:] {
			widen(x[:n], v[i:i+n])
			add(sum[:n], sum[:n], x[:n])
		}
		for _, d := range dst {
			narrow(d[i:i+n], sum[:n])
		}
	}
}
