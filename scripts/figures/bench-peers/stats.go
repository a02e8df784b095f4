package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// quantile returns a quantile of sorted values, of which there must be at least one. It interpolates between neighbouring values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// median returns the median over all rounds; NaN if there are none.
func median(rounds map[int]float64) float64 {
	if len(rounds) == 0 {
		return math.NaN()
	}
	return quantile(slices.Sorted(maps.Values(rounds)), 0.5)
}

// ratio is the time of one side divided by the time of another side, over the rounds in which both
// were measured.
type ratio struct {
	Of        float64 // ratio of the medians over the rounds; NaN if there are none
	Low, High float64 // quartiles of the ratios round by round
}

// compare divides the times of slow by the times of fast. It ignores rounds with only one of the
// two sides, because the speed of the machine may have been different in these rounds.
func compare(slow, fast map[int]float64) ratio {
	above, below := map[int]float64{}, map[int]float64{}
	var each []float64
	for round, s := range slow {
		if f, ok := fast[round]; ok && f > 0 {
			above[round], below[round] = s, f
			each = append(each, s/f)
		}
	}
	if len(each) == 0 {
		return ratio{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(each)
	return ratio{median(above) / median(below), quantile(each, 0.25), quantile(each, 0.75)}
}

// String returns the ratio with its quartiles.
func (r ratio) String() string {
	if math.IsNaN(r.Of) {
		return "-"
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", r.Of, r.Low, r.High)
}

// micros formats microseconds with three significant digits.
func micros(us float64) string {
	switch {
	case math.IsNaN(us):
		return "-"
	case us >= 100:
		return thousands(int64(math.Round(us)))
	case us >= 10:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.2f", us)
}

// decimals formats a ratio.
func decimals(ratio float64) string {
	if math.IsNaN(ratio) {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

// mebibytes formats a number of bytes, rounded up to MiB.
func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+mib-1)/mib) }

// thousands formats a number with commas between groups of three digits.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size formats a number of bytes.
func size(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
