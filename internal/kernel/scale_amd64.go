//go:build !purego

package kernel

import "unsafe"

// scaleUnit is the number of elements that the assembly for scaling takes at a time.
const scaleUnit = 32

// finiteVectors checks whole units at the beginning of v by assembly at level l. It returns the
// elements that are left, and whether those before them are finite.
func finiteVectors(l level, v []float32) (rest []float32, finite bool) {
	n := len(v) / scaleUnit * scaleUnit
	if l == plain || n == 0 {
		return v, true
	}
	s := scaling{v: unsafe.Pointer(unsafe.SliceData(v)), bytes: 4 * n}
	finiteF32(&s)
	return v[n:], s.finite
}

// scaleVectors is finiteVectors for the products with factor, which it writes to v.
func scaleVectors(l level, v []float32, factor float32) (rest []float32, finite bool) {
	n := len(v) / scaleUnit * scaleUnit
	if l == plain || n == 0 {
		return v, true
	}
	s := scaling{v: unsafe.Pointer(unsafe.SliceData(v)), bytes: 4 * n, factor: factor}
	scaleF32(&s)
	return v[n:], s.finite
}

// scaling is the argument of the assembly, which knows its layout.
type scaling struct {
	v      unsafe.Pointer
	bytes  int // whole units, at least one
	factor float32
	finite bool // the result
}

//go:noescape
func finiteF32(v *scaling)

//go:noescape
func scaleF32(v *scaling)
