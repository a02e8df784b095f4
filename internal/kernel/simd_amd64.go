//go:build !purego

package kernel

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/elrun/elrun/dtype"
)

// minVector is the least length in bytes for which assembly is called: one vector register of AVX2.
// Shorter vectors have only a few elements.
const minVector = 32

// levelHere returns the best level of this processor and operating system. It reads the flags each
// time, which costs a few loads.
func levelHere() level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasF16C:
		return plain
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return avx512
	}
	return avx2
}

// foldVectors applies op by assembly at level l. It returns false if there is no assembly for the
// type or the length.
func foldVectors[T dtype.Number](l level, op operation, dst, a, b []T) bool {
	bytes := len(dst) * Size[T]()
	if l == plain || bytes < minVector {
		return false
	}
	v := operands{
		dst:   unsafe.Pointer(unsafe.SliceData(dst)),
		a:     unsafe.Pointer(unsafe.SliceData(a)),
		b:     unsafe.Pointer(unsafe.SliceData(b)),
		bytes: bytes,
		wide:  l == avx512,
	}
	// The logical operations have no assembly: they return false.
	switch op {
	case opAdd:
		return v.add(dtype.TypeOf[T]())
	case opMul:
		return v.mul(dtype.TypeOf[T]())
	case opMin:
		return v.min(dtype.TypeOf[T]())
	case opMax:
		return v.max(dtype.TypeOf[T]())
	case opBitAnd:
		andBits(&v)
	case opBitOr:
		orBits(&v)
	case opBitXor:
		xorBits(&v)
	default:
		return false
	}
	return true
}

// add calls the assembly for a sum. It returns false if there is no assembly for the type. Sums and
// products of integers that wrap around have the same bits for signed and unsigned types.
func (o *operands) add(t dtype.Type) bool {
	switch t {
	case dtype.Int8, dtype.Uint8:
		addI8(o)
	case dtype.Int32, dtype.Uint32:
		addI32(o)
	case dtype.Int64, dtype.Uint64:
		addI64(o)
	case dtype.F32:
		addF32(o)
	case dtype.F64:
		addF64(o)
	case dtype.F16:
		addF16(o)
	case dtype.BF16:
		addBF16(o)
	default:
		return false
	}
	return true
}

// mul calls the assembly for a product. It returns false if there is no assembly for the type.
func (o *operands) mul(t dtype.Type) bool {
	switch t {
	case dtype.Int8, dtype.Uint8:
		mulI8(o)
	case dtype.Int32, dtype.Uint32:
		mulI32(o)
	case dtype.Int64, dtype.Uint64:
		mulI64(o)
	case dtype.F32:
		mulF32(o)
	case dtype.F64:
		mulF64(o)
	case dtype.F16:
		mulF16(o)
	case dtype.BF16:
		mulBF16(o)
	default:
		return false
	}
	return true
}

// min calls the assembly for the lesser element. It returns false if there is no assembly for the
// type. Comparisons differ for signed and unsigned integers, unlike sums.
func (o *operands) min(t dtype.Type) bool {
	switch t {
	case dtype.Int8:
		minI8(o)
	case dtype.Uint8:
		minU8(o)
	case dtype.Int32:
		minI32(o)
	case dtype.Uint32:
		minU32(o)
	case dtype.Int64:
		minI64(o)
	case dtype.Uint64:
		minU64(o)
	case dtype.F32:
		minF32(o)
	case dtype.F64:
		minF64(o)
	case dtype.F16:
		minF16(o)
	case dtype.BF16:
		minBF16(o)
	default:
		return false
	}
	return true
}

// max calls the assembly for the greater element. It returns false if there is no assembly for the
// type.
func (o *operands) max(t dtype.Type) bool {
	switch t {
	case dtype.Int8:
		maxI8(o)
	case dtype.Uint8:
		maxU8(o)
	case dtype.Int32:
		maxI32(o)
	case dtype.Uint32:
		maxU32(o)
	case dtype.Int64:
		maxI64(o)
	case dtype.Uint64:
		maxU64(o)
	case dtype.F32:
		maxF32(o)
	case dtype.F64:
		maxF64(o)
	case dtype.F16:
		maxF16(o)
	case dtype.BF16:
		maxBF16(o)
	default:
		return false
	}
	return true
}

// divideVectors divides v by n by assembly at level l. It returns false if there is none for the
// type or the length.
func divideVectors[T dtype.Number](l level, v []T, n int) bool {
	bytes := len(v) * Size[T]()
	if l == plain || bytes < minVector {
		return false
	}
	p := unsafe.Pointer(unsafe.SliceData(v))
	o := operands{dst: p, a: p, b: p, bytes: bytes, wide: l == avx512, by: uint64(math.Float32bits(float32(n)))}
	switch dtype.TypeOf[T]() {
	case dtype.F32:
		divF32(&o)
	case dtype.F64:
		o.by = math.Float64bits(float64(n))
		divF64(&o)
	case dtype.F16:
		divF16(&o)
	case dtype.BF16:
		divBF16(&o)
	default:
		return false
	}
	return true
}

// sumVectors adds all vectors in the list from, by assembly at level l. It returns false if there
// is none for the type, the length or the number of vectors.
func sumVectors[T dtype.Number](l level, to, from [][]T, nonTemporal int) bool {
	bytes := len(to[0]) * Size[T]()
	if l == plain || bytes < minVector || len(from) < 2 {
		return false
	}
	v := sources{
		to:     unsafe.Pointer(unsafe.SliceData(to)),
		from:   unsafe.Pointer(unsafe.SliceData(from)),
		copies: len(to),
		count:  len(from),
		bytes:  bytes,
		wide:   l == avx512,
	}
	// Non-temporal vector stores need aligned addresses. The same few elements at the start align
	// all destinations only if their offsets in a cache line are equal.
	if alike(to) {
		v.nonTemporal = nonTemporal
	}
	switch dtype.TypeOf[T]() {
	case dtype.Int8, dtype.Uint8:
		sumI8(&v)
	case dtype.Int32, dtype.Uint32:
		sumI32(&v)
	case dtype.Int64, dtype.Uint64:
		sumI64(&v)
	case dtype.F32:
		sumF32(&v)
	case dtype.F64:
		sumF64(&v)
	case dtype.F16:
		sumF16(&v)
	case dtype.BF16:
		sumBF16(&v)
	default:
		return false
	}
	return true
}

// alike reports whether all vectors start at the same offset in a cache line.
func alike[T dtype.Number](all [][]T) bool {
	const line = 64
	first := uintptr(unsafe.Pointer(unsafe.SliceData(all[0]))) % line
	for _, v := range all[1:] {
		if uintptr(unsafe.Pointer(unsafe.SliceData(v)))%line != first {
			return false
		}
	}
	return true
}

// copyVectors copies src to dst with the given options by assembly at level l. It returns false if
// there is none for the length.
func copyVectors(l level, how *Copying, dst, src []byte) bool {
	if l == plain || len(dst) < minVector {
		return false
	}
	copyLines(&copying{
		dst:         unsafe.Pointer(unsafe.SliceData(dst)),
		src:         unsafe.Pointer(unsafe.SliceData(src)),
		bytes:       len(dst),
		next:        unsafe.Pointer(unsafe.SliceData(how.Next[0])),
		after:       unsafe.Pointer(unsafe.SliceData(how.Next[1])),
		ahead:       len(how.Next[0]),
		more:        len(how.Next[1]),
		claim:       how.Prefetchw,
		nonTemporal: how.NonTemporal,
	})
	return true
}

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
