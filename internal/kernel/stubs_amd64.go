//go:build !purego

package kernel

import "unsafe"

// The kernels in assembly. They set dst[i] = a[i] op b[i]; the sums set dst[i] = from[0][i] +
// from[1][i] + ..., the quotients dst[i] = a[i] / by, and the copy dst[i] = src[i]. They use
// AVX-512 if wide is set, otherwise AVX2. Kernels for both signed and unsigned integers have the
// name of the signed type. No kernel keeps a pointer.

// operands is the argument of the assembly for a reduction of two vectors, and for a quotient. dst
// may be a or b; vectors that overlap in another way give wrong results. The assembly knows its
// layout.
type operands struct {
	dst, a, b unsafe.Pointer
	bytes     int    // length of each vector, at least minVector
	wide      bool   // use AVX-512
	by        uint64 // bit pattern of the divisor: a float64 for float64 vectors, otherwise a float32
}

//go:noescape
func addF32(v *operands)

//go:noescape
func addF64(v *operands)

//go:noescape
func mulF32(v *operands)

//go:noescape
func mulF64(v *operands)

//go:noescape
func minF32(v *operands)

//go:noescape
func minF64(v *operands)

//go:noescape
func maxF32(v *operands)

//go:noescape
func maxF64(v *operands)

//go:noescape
func addF16(v *operands)

//go:noescape
func mulF16(v *operands)

//go:noescape
func minF16(v *operands)

//go:noescape
func maxF16(v *operands)

//go:noescape
func addBF16(v *operands)

//go:noescape
func mulBF16(v *operands)

//go:noescape
func minBF16(v *operands)

//go:noescape
func maxBF16(v *operands)

//go:noescape
func addI8(v *operands)

//go:noescape
func addI32(v *operands)

//go:noescape
func addI64(v *operands)

//go:noescape
func mulI8(v *operands)

//go:noescape
func mulI32(v *operands)

//go:noescape
func mulI64(v *operands)

//go:noescape
func minI8(v *operands)

//go:noescape
func minU8(v *operands)

//go:noescape
func minI32(v *operands)

//go:noescape
func minU32(v *operands)

//go:noescape
func minI64(v *operands)

//go:noescape
func minU64(v *operands)

//go:noescape
func maxI8(v *operands)

//go:noescape
func maxU8(v *operands)

//go:noescape
func maxI32(v *operands)

//go:noescape
func maxU32(v *operands)

//go:noescape
func maxI64(v *operands)

//go:noescape
func maxU64(v *operands)

//go:noescape
func andBits(v *operands)

//go:noescape
func orBits(v *operands)

//go:noescape
func xorBits(v *operands)

//go:noescape
func divF32(v *operands)

//go:noescape
func divF64(v *operands)

//go:noescape
func divF16(v *operands)

//go:noescape
func divBF16(v *operands)

// sources is the argument of the assembly for a sum of several vectors. Each destination may be one
// of the added vectors; vectors that overlap in another way give wrong results. The assembly knows
// its layout.
type sources struct {
	to, from    unsafe.Pointer // first slice header of the destinations and of the added vectors
	copies      int            // number of destinations, at least 1
	count       int            // number of added vectors, at least 2
	bytes       int            // length of each vector, at least minVector
	wide        bool           // use AVX-512
	nonTemporal int            // number of destinations at the end for non-temporal stores; 0 unless all are alike
}

//go:noescape
func sumF32(v *sources)

//go:noescape
func sumF64(v *sources)

//go:noescape
func sumI8(v *sources)

//go:noescape
func sumI32(v *sources)

//go:noescape
func sumI64(v *sources)

//go:noescape
func sumF16(v *sources)

//go:noescape
func sumBF16(v *sources)

// copying is the argument of the assembly for a copy. The assembly knows its layout.
type copying struct {
	dst, src           unsafe.Pointer
	bytes              int            // at least minVector
	next, after        unsafe.Pointer // memory to prefetch
	ahead, more        int            // their lengths in bytes
	claim, nonTemporal bool           // take ownership of the source (PREFETCHW); non-temporal stores
}

//go:noescape
func copyLines(v *copying)
