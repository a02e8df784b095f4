package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteRate is the value of a flag in bytes per second; 0 if it is not given.
type byteRate int

// UnmarshalText implements encoding.TextUnmarshaler for kong: its errors are usage errors.
func (b *byteRate) UnmarshalText(text []byte) error {
	n, err := parseRate(string(text))
	*b = byteRate(n)
	return err
}

// parseRate parses a rate such as 10MB/s, 1.5GiB/s or 500k: a decimal number and a unit. The "/s"
// and the B are optional.
func parseRate(s string) (int, error) {
	number := strings.TrimRight(strings.TrimSuffix(s, "/s"), "kKMGiB")
	unit, ok := rateUnit(strings.TrimSuffix(s, "/s")[len(number):])
	// Only digits and a point are allowed, whereas ParseFloat also accepts forms such as 0x1p4 and
	// Inf.
	plain := number != "" && strings.Trim(number, "0123456789.") == ""
	v, err := strconv.ParseFloat(number, 64)
	if !ok || !plain || err != nil {
		return 0, fmt.Errorf("rate %q: want bytes a second, as in 10MB/s, 500kB/s or 1GiB/s", s)
	}
	// The upper bound keeps the conversion to int from overflowing.
	v = math.Round(v * unit)
	// A rate below minRate is probably a missing unit: no peer could join at such a rate.
	if v < minRate || v > math.MaxInt/2 {
		return 0, fmt.Errorf("rate %q: want at least %d bytes a second", s, minRate)
	}
	return int(v), nil
}

// minRate is the lowest rate, in bytes per second. A smaller number is probably a mistake, such as
// a missing unit.
const minRate = 1000

// rateUnit returns the number of bytes in a unit, with or without its B. Units without an i are
// powers of 1000, as usual for rates; ok is false for an unknown unit.
func rateUnit(s string) (float64, bool) {
	switch strings.TrimSuffix(s, "B") {
	case "":
		return 1, true
	case "k", "K":
		return 1e3, true
	case "M":
		return 1e6, true
	case "G":
		return 1e9, true
	case "Ki":
		return 1 << 10, true
	case "Mi":
		return 1 << 20, true
	case "Gi":
		return 1 << 30, true
	}
	return 0, false
}
