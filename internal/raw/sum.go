package raw

import "fmt"

// AddAll sets dst[i] = from[0][i] + from[1][i] + ..., added from the left, in one
// pass over all of them. Integers wrap. Float16 and BFloat16 are added in float32
// and rounded once, at the end: that is more exact than a chain of Add, and so
// differs from it. There must be at least one vector; dst may be any of them.
func AddAll[T Number](dst []T, from [][]T) { addAll(levelHere(), dst, from, false) }

// AddAllStream is AddAll for results that are not soon read again and do not fit
// the caches: where it can it writes past them, so that dst is not read from memory
// before it is overwritten.
func AddAllStream[T Number](dst []T, from [][]T) { addAll(levelHere(), dst, from, true) }

func addAll[T Number](l level, dst []T, from [][]T, stream bool) {
	if len(from) == 0 {
		panic("raw: AddAll: no vectors")
	}
	for i, v := range from {
		if len(v) != len(dst) {
			panic(fmt.Sprintf("raw: AddAll: lengths differ: dst %d, vector %d has %d", len(dst), i, len(v)))
		}
	}
	switch {
	case len(from) == 1 && stream:
		CopyStream(dst, from[0])
	case !sumVectors(l, dst, from, stream):
		addAllLoop(dst, from)
	}
}

// addAllLoop is AddAll in plain Go.
func addAllLoop[T Number](dst []T, from [][]T) {
	if isHalf[T]() {
		addAllHalf(dst, from)
		return
	}
	// In parts, so that each is still in the fastest cache when the next vector is
	// added to it. The part of dst is written last: it may be one of the vectors.
	var part [block]T
	for i := 0; i < len(dst); i += block {
		n := min(block, len(dst)-i)
		copy(part[:n], from[0][i:])
		for _, v := range from[1:] {
			add(part[:n], part[:n], v[i:i+n])
		}
		copy(dst[i:], part[:n])
	}
}

// addAllHalf is addAllLoop by way of float32.
func addAllHalf[T Number](dst []T, from [][]T) {
	var sum, x [block]float32
	for i := 0; i < len(dst); i += block {
		n := min(block, len(dst)-i)
		widen(sum[:n], from[0][i:i+n])
		for _, v := range from[1:] {
			widen(x[:n], v[i:i+n])
			add(sum[:n], sum[:n], x[:n])
		}
		narrow(dst[i:i+n], sum[:n])
	}
}
