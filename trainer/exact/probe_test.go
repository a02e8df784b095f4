package exact

import (
	"math"
	"testing"
)

func TestProbeIsStable(t *testing.T) {
	first := Probe()
	var keep [][]float32
	for i := range 20 { // repeat at other addresses
		keep = append(keep, make([]float32, 3*i+1))
		if got := Probe(); got != first {
			t.Fatalf("probe %016x, then %016x", first, got)
		}
	}
	if len(keep) != 20 {
		t.Fatal("unreachable")
	}
}

// The probe can tell machines apart only if its results need rounding.
func TestProbeCoversOrdinaryNumbers(t *testing.T) {
	for i, v := range functions(500) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("result %d is %v", i, v)
		}
	}
	x, y, z := numbers(500, 5), numbers(500, 6), numbers(500, 7)
	differ := 0
	for i, got := range fusable(500) {
		once := float32(float64(x[i])*float64(y[i]) + float64(z[i]))
		twice := float32(x[i]*y[i]) + z[i]
		if got != once && got != twice {
			t.Fatalf("sum %d is %v, neither %v nor %v", i, got, once, twice)
		}
		if once != twice {
			differ++
		}
	}
	if differ < 20 {
		t.Errorf("rounding once or twice makes a difference for %d of 500 numbers", differ)
	}
}
