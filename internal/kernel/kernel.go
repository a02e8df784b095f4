// Package kernel is the bottom of elrun: the ten numeric types, their views as
// bytes, and the kernels that combine vectors of them.
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
	"fmt"
	"unsafe"
)

// Float16 is an IEEE 754 binary16 number in its bit pattern.
type Float16 uint16

// BFloat16 is the upper half of an IEEE 754 binary32 number.
type BFloat16 uint16

// Integer lists the integer element types.
type Integer interface {
	int8 | int32 | int64 | uint8 | uint32 | uint64
}

// Number lists every element type a vector can have.
type Number interface {
	Integer | float32 | float64 | Float16 | BFloat16
}

// Type names an element type on the wire and in flags. The values are part of
// the wire format; zero is no type.
type Type uint8

// The element types.
const (
	Int8 Type = iota + 1
	Int32
	Int64
	Uint8
	Uint32
	Uint64
	F32
	F64
	F16
	BF16
)

// TypeOf returns the Type of T.
func TypeOf[T Number]() Type {
	var z T
	switch any(z).(type) {
	case int8:
		return Int8
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case float32:
		return F32
	case float64:
		return F64
	case Float16:
		return F16
	}
	return BF16
}

// Types lists every type, in wire order.
func Types() []Type {
	return []Type{Int8, Int32, Int64, Uint8, Uint32, Uint64, F32, F64, F16, BF16}
}

// String returns the name used in flags and logs: int8, float32, bfloat16, ...
func (t Type) String() string {
	switch t {
	case Int8:
		return "int8"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	case Uint8:
		return "uint8"
	case Uint32:
		return "uint32"
	case Uint64:
		return "uint64"
	case F32:
		return "float32"
	case F64:
		return "float64"
	case F16:
		return "float16"
	case BF16:
		return "bfloat16"
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// ParseType is the inverse of Type.String.
func ParseType(name string) (Type, error) {
	for _, t := range Types() {
		if t.String() == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("kernel: unknown element type %q (one of %v)", name, Types())
}

// Size returns the bytes of one element of T.
func Size[T Number]() int {
	var z T
	return int(unsafe.Sizeof(z))
}

// Bytes returns the memory of v as bytes, without a copy: it aliases v and lives
// as long. elrun builds on little-endian machines only, so this is the wire form.
func Bytes[T Number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*Size[T]())
}
