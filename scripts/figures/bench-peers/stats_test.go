package main

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		rounds map[int]float64
		want   float64
	}{
		{map[int]float64{0: 3}, 3},
		{map[int]float64{0: 9, 1: 1, 5: 2}, 2},
		{map[int]float64{0: 4, 1: 1, 2: 2, 3: 100}, 3},
	} {
		if got := median(c.rounds); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.rounds, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v", got)
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{10, 20, 30, 40, 50}
	for q, want := range map[float64]float64{0: 10, 0.25: 20, 0.5: 30, 0.6: 34, 1: 50} {
		if got := quantile(values, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

// The ratio compares the medians over the rounds that both sides have.
func TestCompare(t *testing.T) {
	slow := map[int]float64{0: 20, 1: 40, 2: 60, 9: 1000}
	fast := map[int]float64{0: 10, 1: 10, 2: 10}
	r := compare(slow, fast)
	if r.Of != 4 || r.Low != 3 || r.High != 5 {
		t.Errorf("got %+v", r)
	}
	if got := r.String(); got != "4.00 (3.00-5.00)" {
		t.Errorf("shown as %q", got)
	}
	if got := compare(map[int]float64{0: 3}, map[int]float64{1: 2}).String(); got != "-" {
		t.Errorf("of different rounds: %q", got)
	}
	if got := compare(slow, nil).String(); got != "-" {
		t.Errorf("against nothing: %q", got)
	}
}

func TestNumbersAsText(t *testing.T) {
	for us, want := range map[float64]string{0.456: "0.46", 12.34: "12.3", 123.4: "123", 1234567.8: "1,234,568", math.NaN(): "-"} {
		if got := micros(us); got != want {
			t.Errorf("%v us are shown as %q, want %q", us, got, want)
		}
	}
	for bytes, want := range map[int]string{4: "4 B", 1000: "1000 B", 1 << 10: "1 KiB", 1536: "1536 B", 64 << 20: "64 MiB"} {
		if got := size(bytes); got != want {
			t.Errorf("%d bytes are shown as %q, want %q", bytes, got, want)
		}
	}
	for n, want := range map[int64]string{1: "1 MiB", mib: "1 MiB", mib + 1: "2 MiB"} {
		if got := mebibytes(n); got != want {
			t.Errorf("%d bytes are shown as %q, want %q", n, got, want)
		}
	}
	if got := decimals(math.NaN()) + decimals(0.956); got != "-0.96" {
		t.Errorf("ratios are shown as %q", got)
	}
}
