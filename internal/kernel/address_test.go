package kernel

import (
	"unsafe"

	"github.com/elrun/elrun/dtype"
)

// addressOf returns the address of the first element of v.
func addressOf[T dtype.Number](v []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(v))) }
