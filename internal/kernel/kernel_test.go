package kernel

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"github.com/elrun/elrun/dtype"
)

// testType checks the name, size, memory and conversions of a type.
func testType[T dtype.Number](t *testing.T, name string, size int) {
	t.Helper()
	if got := dtype.TypeOf[T]().String(); got != name {
		t.Errorf("TypeOf %s is %s", name, got)
	}
	if got := Size[T](); got != size {
		t.Errorf("Size of %s is %d, want %d", name, got, size)
	}
	v := []T{FromFloat64[T](1), FromFloat64[T](2)}
	if b := Bytes(v); len(b) != 2*size || &Bytes(v[1:])[0] != &b[size] {
		t.Errorf("%s: Bytes of 2 elements is not their memory", name)
	}
	for _, x := range []float64{0, 1, 2, 17, 127} {
		if got := ToFloat64(FromFloat64[T](x)); got != x {
			t.Errorf("%s: %v comes back as %v", name, x, got)
		}
	}
	for _, n := range []int{0, 1, 7, 8, 9} {
		words := make([]uint64, Words[T](n))
		view := View[T](words, n)
		for i := range view {
			view[i] = FromFloat64[T](1)
		}
		if len(view) != n || 8*len(words) < n*size || 8*len(words) >= n*size+8 {
			t.Errorf("%s: view of %d elements has %d, in %d words", name, n, len(view), len(words))
		}
	}
}

// The basic functions are right for all types.
func TestTypeOf(t *testing.T) {
	testType[int](t, fmt.Sprint("int", strconv.IntSize), strconv.IntSize/8)
	testType[int8](t, "int8", 1)
	testType[int32](t, "int32", 4)
	testType[int64](t, "int64", 8)
	testType[uint8](t, "uint8", 1)
	testType[uint32](t, "uint32", 4)
	testType[uint64](t, "uint64", 8)
	testType[float32](t, "float32", 4)
	testType[float64](t, "float64", 8)
	testType[dtype.Float16](t, "float16", 2)
	testType[dtype.BFloat16](t, "bfloat16", 2)
}

// Bytes returns the elements in little-endian order, and nil for an empty vector.
func TestBytes(t *testing.T) {
	if b := Bytes([]float64{}); b != nil {
		t.Errorf("bytes of an empty vector: %v", b)
	}
	v := []uint32{0x04030201, 0x08070605}
	if b := Bytes(v); !bytes.Equal(b, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("bytes are %v, not little-endian", b)
	}
}

// View panics if the elements do not fit.
func TestViewTooLong(t *testing.T) {
	if panicOf(func() { View[int32](make([]uint64, 1), 3) }) == "" {
		t.Error("no panic")
	}
}

// The kernels do not allocate, whatever the type.
func TestNoAllocation(t *testing.T) {
	testNoAllocation[float32](t)
	testNoAllocation[dtype.Float16](t)
	testNoAllocation[dtype.BFloat16](t)
	testNoAllocation[int8](t)
}

// testNoAllocation checks some kernels of one type.
func testNoAllocation[T dtype.Number](t *testing.T) {
	t.Helper()
	v := make([]T, 1000)
	n := testing.AllocsPerRun(10, func() {
		Add(v, v, v)
		Min(v, v, v)
		Xor(v, v, v)
		DivideBy(v, 3)
	})
	if n != 0 {
		t.Errorf("%v: %v allocations", dtype.TypeOf[T](), n)
	}
}
