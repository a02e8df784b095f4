package kernel

import (
	"unsafe"

	"github.com/elrun/elrun/dtype"
)

// Overlap reports whether two vectors have memory in common. Collective operations refuse vectors
// that overlap in part, because a chunk could be overwritten before it is sent. Empty vectors
// overlap with nothing.
func Overlap[T dtype.Number](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	size := unsafe.Sizeof(a[0])
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b))*size && y < x+uintptr(len(a))*size
}
