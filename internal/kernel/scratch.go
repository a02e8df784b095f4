package kernel

import (
	"unsafe"

	"github.com/elrun/elrun/dtype"
)

// Words returns how many 64-bit words hold n elements of T. Scratch memory is allocated in words,
// so that one pool serves all types with their alignment.
func Words[T dtype.Number](n int) int { return (n*Size[T]() + 7) / 8 }

// View returns the memory of words as n elements of T, without a copy: the result aliases words. It
// panics if the elements do not fit.
func View[T dtype.Number](words []uint64, n int) []T {
	if Words[T](n) > len(words) {
		panic("kernel: view: vector longer than its memory")
	}
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(words))), n)
}
