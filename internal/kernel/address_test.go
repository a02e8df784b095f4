package kernel

import "unsafe"

// addressOf returns where v begins.
func addressOf[T Number](v []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(v))) }
