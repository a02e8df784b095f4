//go:build !purego

package product

import "golang.org/x/sys/cpu"

// vectors computes the rows, terms and lines of t, or its dot products, with AVX2. It returns false
// if the processor has none.
func vectors(t *tile, ofDots bool) bool {
	switch {
	case !cpu.X86.HasAVX2:
		return false
	case ofDots:
		dotsAVX2(t)
	default:
		outerAVX2(t)
	}
	return true
}

// The assembly does not check offsets, and it needs at least one term and one pair of lines.

//go:noescape
func outerAVX2(t *tile)

//go:noescape
func dotsAVX2(t *tile)
