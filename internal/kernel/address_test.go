package kernel

import (
	"unsafe"

	"github.com/elrun/elrun/dtype"
)

// addressOf returns where v begins.
func addressOf[T dtype.Number](v []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(v))) }
