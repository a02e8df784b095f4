// Package kernel is the bottom of elrun: vectors of the types of package dtype as bytes, and the
// kernels that combine such vectors.
//
// It is the only package, with the shared-memory transport, in which unsafe and
// assembly may appear. Every kernel takes its destination first and panics when
// lengths differ: that is a mistake of the caller, not an error of the data.
//
//	v := []float32{1, 2}
//	kernel.Add(v, v, []float32{3, 4})  // v = [4 6]
//	kernel.Bytes(v)                    // the 8 bytes of v, little-endian, no copy
//
// On amd64 the kernels use AVX2, or AVX-512 where the processor has it; elsewhere,
// and with the build tag purego, they are loops in Go. Both compute the same. A sum
// of several vectors takes one pass over them:
//
//	kernel.AddAll([][]float32{dst}, [][]float32{a, b, c}, false)  // dst[i] = a[i] + b[i] + c[i]
//
// AddAll and Copying can write past the caches: for results too long for them.
//
// Read, WriteTwo, Option and Yield are system calls that the Go scheduler does not know of, for
// descriptors that do not block. Package internal/netpoll uses them.
package kernel

import (
	"unsafe"

	"github.com/elrun/elrun/dtype"
)

// Size returns the bytes of one element of T.
func Size[T dtype.Number]() int {
	var z T
	return int(unsafe.Sizeof(z))
}

// Bytes returns the memory of v as bytes, without a copy: it aliases v and lives
// as long. elrun builds on little-endian machines only, so this is the wire form.
func Bytes[T dtype.Number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*Size[T]())
}
