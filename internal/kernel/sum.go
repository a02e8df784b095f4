package kernel

import (
	"fmt"

	"github.com/elrun/elrun/dtype"
)

// AddAll sets dst[k][i] = from[0][i] + from[1][i] + ... for every k, added from the left, in
// one pass over all of them: each sum is made once. Integers wrap. Float16 and BFloat16 are
// added in float32 and rounded once, at the end: that is more exact than a chain of Add, and
// so differs from it. There must be at least one vector on either side, all of the same
// length. Each of dst may be one of from; otherwise none that is written may overlap another.
//
// past is how many of dst, the last of them, are not soon read again and do not fit the caches:
// where it can AddAll writes past these, so that they are not read from memory before they are
// overwritten. It can if all of dst begin at the same place of a cache line.
func AddAll[T dtype.Number](dst, from [][]T, past int) { addAll(levelHere(), dst, from, past) }

func addAll[T dtype.Number](l level, dst, from [][]T, past int) {
	if len(from) == 0 || len(dst) == 0 {
		panic(fmt.Sprintf("kernel: AddAll: %d vectors into %d", len(from), len(dst)))
	}
	n := len(dst[0])
	for i, v := range from {
		if len(v) != n {
			panic(fmt.Sprintf("kernel: AddAll: lengths differ: dst %d, vector %d has %d", n, i, len(v)))
		}
	}
	for i, v := range dst {
		if len(v) != n {
			panic(fmt.Sprintf("kernel: AddAll: lengths differ: dst %d, dst %d has %d", n, i, len(v)))
		}
	}
	if sumVectors(l, dst, from, past) {
		return
	}
	addAllLoop(dst, from)
}

// addAllLoop is AddAll in plain Go.
func addAllLoop[T dtype.Number](dst, from [][]T) {
	if isHalf[T]() {
		addAllHalf(dst, from)
		return
	}
	// In parts, so that each is still in the fastest cache when the next vector is
	// added to it. The part of dst is written last: it may be one of the vectors.
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

// addAllHalf is addAllLoop by way of float32.
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
