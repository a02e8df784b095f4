// Package kernel has the lowest layer of elrun: the compute kernels that combine vectors, vectors
// as bytes, and system calls that bypass the Go scheduler.
//
// Only this package and the shared-memory transport may use unsafe, and only they and
// internal/product assembly. Every kernel takes its destination first. It panics when lengths
// differ, as that is a mistake of the caller and not an error of the data.
//
//	v := []float32{1, 2}
//	kernel.Add(v, v, []float32{3, 4})  // v = [4 6]
//	kernel.Bytes(v)                    // the 8 bytes of v, little-endian, no copy
//
// On amd64 the kernels use AVX2, or AVX-512 where the processor has it. Elsewhere, and with the
// build tag purego, they are loops in Go. Both give the same results.
//
// A sum of several vectors takes one pass over them:
//
//	kernel.AddAll([][]float32{dst}, [][]float32{a, b, c}, 0)  // dst[i] = a[i] + b[i] + c[i]
//
// AddAll and Copying can write by non-temporal stores, for results that do not fit the caches.
//
// Read, WriteTwo, Option and Yield are system calls that bypass the Go scheduler, for non-blocking
// descriptors. Package internal/netpoll uses them.
package kernel

import (
	"unsafe"

	"github.com/elrun/elrun/dtype"
)

// Size returns the size of an element of T in bytes.
func Size[T dtype.Number]() int {
	var z T
	return int(unsafe.Sizeof(z))
}

// Bytes returns the memory of v as bytes, without a copy: the result aliases v and lives as long as
// v. As elrun builds on little-endian processors only, this is the wire form.
func Bytes[T dtype.Number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*Size[T]())
}

// Elements returns the memory of b as elements, without a copy: the inverse of Bytes. b must begin at a
// multiple of the element size. Bytes beyond the last whole element are left out.
func Elements[T dtype.Number](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/Size[T]())
}
