package main

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	for s, want := range map[string]int{
		"10MB/s": 10e6, "10M": 10e6, "500kB/s": 500e3, "500K": 500e3, "1.5MB": 1.5e6, "2GB/s": 2e9,
		"4KiB/s": 4096, "1MiB": 1 << 20, "1Gi/s": 1 << 30, "1000": 1000, "1000B/s": 1000, ".5M": 500e3, "2.M": 2e6,
	} {
		if got, err := parseRate(s); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "MB/s", "/s", "10Mb/s", "10 MB", "-1MB", "1e9", "0x10M", "inf", "NaN", "1.2.3M", "10MBB", "10iB",
		"10kk", "10KM", "10MB/s/s", "10MB/h", "0", "0MB/s", "999", "1B/s", "99999999999999999999GB/s", "10MB/s "} {
		if got, err := parseRate(s); err == nil || got != 0 {
			t.Errorf("%q: %d, %v, want an error", s, got, err)
		}
	}
}

// A rate is a number with a unit.
func TestParseRateUnits(t *testing.T) {
	units := map[string]int{"": 1, "B": 1, "k": 1000, "KB": 1000, "MB": 1e6, "GiB": 1 << 30, "MiB": 1 << 20, "Ki": 1024}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"", "B", "k", "KB", "MB", "GiB", "MiB", "Ki"}).Draw(t, "unit")
		n := rapid.IntRange(minRate, 1<<20).Draw(t, "n")
		end := rapid.SampledFrom([]string{"", "/s"}).Draw(t, "end")
		if got, err := parseRate(fmt.Sprint(n, unit) + end); err != nil || got != n*units[unit] {
			t.Fatalf("%d %s: %d, %v", n, unit, got, err)
		}
	})
}

// FuzzParseRate checks that a parsed rate is within its bounds, and that the same rate in bytes is parsed to the same value.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"10MB/s", "1.5GiB", "500k", "0", "-1", "1e400", "inf", "KiB/s", "99999999999G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var r byteRate
		if err := r.UnmarshalText([]byte(s)); err != nil {
			if r != 0 {
				t.Errorf("%q: %d and %v", s, r, err)
			}
			return
		}
		if r < minRate || r > math.MaxInt/2 {
			t.Errorf("%q: %d", s, r)
		}
		if again, err := parseRate(fmt.Sprint(int(r))); again != int(r) && r < 1<<53 || err != nil {
			t.Errorf("%q: %d, read again %d, %v", s, r, again, err)
		}
	})
}
