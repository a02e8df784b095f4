package ring

import (
	"fmt"
	"math"
	"testing"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Of two pairs MinLoc and MaxLoc take the one with the lesser or greater value, then the one with the lesser index, whichever
// comes first.
func TestLoc(t *testing.T) {
	testLoc[int](t)
	testLoc[int8](t)
	testLoc[float32](t)
	testLoc[float64](t)
	testLoc[dtype.Float16](t)
	testLoc[dtype.BFloat16](t)
	testLocOf(t, []uint64{math.MaxUint64, 1}, []uint64{math.MaxUint64 - 1, 0}, "[18446744073709551614 0]", "[18446744073709551615 1]")
	nan := math.NaN()
	testLocOf(t, []float64{nan, 4}, []float64{-1, 2}, "[NaN 4]", "[NaN 4]")
	testLocOf(t, []float64{nan, 4}, []float64{nan, 2}, "[NaN 2]", "[NaN 2]")
	testLocOf(t, []float64{0, 1}, []float64{math.Copysign(0, -1), 2}, "[0 1]", "[0 1]")
}

// testLoc tests values that all signed types have.
func testLoc[T Number](t *testing.T) {
	t.Helper()
	pair := func(value, index float64) []T { return []T{kernel.FromFloat64[T](value), kernel.FromFloat64[T](index)} }
	for _, c := range []struct{ a, b, least, greatest []T }{
		{pair(1, 0), pair(2, 1), pair(1, 0), pair(2, 1)},
		{pair(-2, 0), pair(-3, 1), pair(-3, 1), pair(-2, 0)}, // as bit patterns of floats, -3 is more than -2
		{pair(5, 7), pair(5, 3), pair(5, 3), pair(5, 3)},
	} {
		testLocOf(t, c.a, c.b, fmt.Sprint(c.least), fmt.Sprint(c.greatest))
	}
}

// testLocOf reduces two pairs in both orders, and in place.
func testLocOf[T Number](t *testing.T, a, b []T, least, greatest string) {
	t.Helper()
	for _, v := range [][2][]T{{a, b}, {b, a}} {
		low, high := append([]T{}, v[0]...), append([]T{}, v[1]...)
		MinLoc[T]().Fold(low, low, v[1])
		MaxLoc[T]().Fold(high, v[0], high)
		if fmt.Sprint(low) != least || fmt.Sprint(high) != greatest {
			t.Errorf("%v of %v and %v: %v and %v, want %s and %s", dtype.TypeOf[T](), v[0], v[1], low, high, least, greatest)
		}
	}
}
