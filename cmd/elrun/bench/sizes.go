package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxBytes is the largest size: 16 GiB. A larger size is probably a wrong unit, as each rank needs
// at least one vector of this size.
const maxBytes = 16 << 30

// ParseSizes parses a list of sizes in bytes, such as "4,1K,64M"; K, M and G are powers of 1024.
func ParseSizes(list string) ([]int, error) {
	var out []int
	for s := range strings.SplitSeq(list, ",") {
		n, err := parseSize(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// parseSize parses one size of a list.
func parseSize(s string) (int, error) {
	digits, shift := s, 0
	if s != "" {
		// Clearing bit 0x20 turns an ASCII letter into its capital, so k, m and g are units, too.
		if i := strings.IndexByte("KMG", s[len(s)-1]&^0x20); i >= 0 {
			digits, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	// The comparison is with the limit in the unit given, so that the shift below cannot
	// overflow.
	n, err := strconv.ParseUint(digits, 10, 40)
	if err != nil || n == 0 || n > maxBytes>>shift {
		return 0, fmt.Errorf("bench: size %q: want a number of bytes from 1 to 16G, as in 64K", s)
	}
	return int(n) << shift, nil
}

// WriteHeader writes the column names of Result.WriteRow. Both formats have the same column
// widths.
func WriteHeader(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%12s %9s %6s %10s %10s %10s %10s %9s %9s %8s %6s %19s\n",
		"bytes", "dtype", "iters", "us_min", "us_p50", "us_mean", "us_p99", "algbw", "busbw", "of bound", "wrong", "algorithm")
	return err
}

// WriteRow writes r as a line of a table. Times are in microseconds, bandwidths in 1e9 bytes/s. The
// choice of Auto in a comparison of algorithms has a star.
func (r Result) WriteRow(w io.Writer) error {
	// Without a measurement of links there is no bound to compare with.
	ofBound := "-"
	if r.OfBound > 0 {
		ofBound = fmt.Sprintf("%.2f", r.OfBound)
	}
	algorithm := r.Algorithm
	if r.Auto {
		algorithm += "*"
	}
	_, err := fmt.Fprintf(w, "%12d %9s %6d %10.1f %10.1f %10.1f %10.1f %9.3f %9.3f %8s %6d %19s\n",
		r.Bytes, r.Type, r.Iters, r.Min, r.P50, r.Mean, r.P99, r.AlgBW, r.BusBW, ofBound, r.Wrong, algorithm)
	return err
}
