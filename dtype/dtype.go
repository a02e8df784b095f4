// Package dtype has the element types of vectors: type constraints for generic functions, the two
// 16-bit floating-point types that Go lacks, and the names of the types on the wire and in flags.
//
//	dtype.TypeOf[float32]().String()   // "float32"
//	dtype.ToBFloat16(1.5).Float32()    // 1.5
package dtype

import (
	"fmt"
	"strconv"
)

// Float16 is an IEEE 754 binary16 number, as its bit pattern: 1 sign bit, 5 bits of exponent, 10
// bits of fraction.
type Float16 uint16

// BFloat16 is the upper half of an IEEE 754 binary32 number, as its bit pattern: 1 sign bit, 8 bits
// of exponent, 7 bits of fraction.
type BFloat16 uint16

// Integer is the constraint for integer element types.
type Integer interface {
	int | int8 | int32 | int64 | uint8 | uint32 | uint64
}

// Number is the constraint for all element types of vectors.
type Number interface {
	Integer | float32 | float64 | Float16 | BFloat16
}

// Type identifies an element type on the wire and in flags. The values are part of the wire format
// and must not change. The zero Type is not valid.
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

// TypeOf returns the Type of T. An int has the Type of the integer of its length: Int64, or Int32 on
// 32-bit platforms. So a vector of int fits a vector of int64 at another rank. TypeOf costs a few
// comparisons, because the compiler does not resolve its switch. So call it once for a vector, not
// for each element.
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
	case int:
		if strconv.IntSize == 32 {
			return Int32
		}
		return Int64
	}
	return BF16
}

// Types returns all types, in the order of their values on the wire.
func Types() []Type {
	return []Type{Int8, Int32, Int64, Uint8, Uint32, Uint64, F32, F64, F16, BF16}
}

// String returns the name for flags and logs, such as "float32" or "bfloat16".
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

// ParseType returns the type with the given name. It is the inverse of Type.String, and returns an
// error for an unknown name.
func ParseType(name string) (Type, error) {
	for _, t := range Types() {
		if t.String() == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("dtype: unknown element type %q (one of %v)", name, Types())
}
