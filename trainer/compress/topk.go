package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
)

// TopK is the coding in a fraction of the elements: those of the largest magnitude, each
// rounded to bfloat16. The others wait in what Encode leaves. At says how a training begins.
//
// The code of n elements, of which it keeps k: for each run of 255 elements a byte, how
// many are kept of it; k bytes, their places in the run, ascending; and k times 2 bytes,
// their values.
type TopK struct{ fraction float64 }

// leastKept is how many elements a code has at least, or all: the last layer and the biases
// have few, of which each counts, and they cost little.
const leastKept = 256

// run is how many elements' places fit one byte, and so does their number.
const run = 255

// A training begins with more: with the fraction early of all elements, half of that after
// earlySteps, and so on. What is not sent comes late, after 1 over the fraction steps if all
// elements take turns, and in its first steps a model changes fastest. That costs at most
// as many elements as earlySteps/4 steps have.
const (
	early      = 0.125
	earlySteps = 32
)

// At returns the coding for a step of a training, from 1, whose coding is c: in the first
// steps a TopK with a larger fraction (the warm-up of Lin and others 2018), else c itself.
// Fractions are halved, which is exact, so that peers of all architectures agree on them.
func At(c collective.Coding, step int64) collective.Coding {
	k, ok := c.(TopK)
	if !ok {
		return c
	}
	fraction := early
	for ; step > earlySteps && fraction > k.fraction; step -= earlySteps {
		fraction /= 2
	}
	return TopK{max(fraction, k.fraction)}
}

// NewTopK returns the coding that keeps a fraction of the elements, above 0 and up to
// 0.5, and at least 256 or all of them.
func NewTopK(fraction float64) (TopK, error) {
	if !(fraction > 0 && fraction <= 0.5) {
		return TopK{}, fmt.Errorf("compression topk: a fraction of %v, want above 0 and up to 0.5", fraction)
	}
	return TopK{fraction}, nil
}

// Name returns "topk:" and the fraction.
func (c TopK) Name() string { return "topk:" + strconv.FormatFloat(c.fraction, 'g', -1, 64) }

// Sparse returns true.
func (TopK) Sparse() bool { return true }

// Size returns a byte for each run, and 3 for each element that is kept.
func (c TopK) Size(n int) int { return runs(n) + 3*c.keeps(n) }

// keeps returns how many of n elements the code has.
func (c TopK) keeps(n int) int {
	return min(n, max(leastKept, int(math.Ceil(c.fraction*float64(n)))))
}

// runs returns how many runs n elements have.
func runs(n int) int { return (n + run - 1) / run }

// parts cuts a code for n elements.
func (c TopK) parts(code []byte, n int) (counts, places, values []byte) {
	r, k := runs(n), c.keeps(n)
	return code[:r], code[r : r+k], code[r+k : r+3*k]
}

// Encode implements collective.Coding.
func (c TopK) Encode(code []byte, v []float32) {
	counts, places, values := c.parts(code, len(v))
	least, equal := threshold(v, len(places))
	for r := range counts {
		part := v[r*run : min((r+1)*run, len(v))]
		kept := 0
		for i, x := range part {
			m := magnitude(x)
			if m < least || m == least && equal == 0 {
				continue
			}
			if m == least {
				equal--
			}
			h := dtype.ToBFloat16(x)
			places[kept] = byte(i)
			binary.LittleEndian.PutUint16(values[2*kept:], uint16(h))
			part[i] = x - h.Float32()
			kept++
		}
		counts[r] = byte(kept)
		places, values = places[kept:], values[2*kept:]
	}
}

// Add implements collective.Coding.
func (c TopK) Add(dst []float32, code []byte) error {
	counts, places, values := c.parts(code, len(dst))
	for r, count := range counts {
		part, kept := dst[r*run:min((r+1)*run, len(dst))], int(count)
		if kept > len(places) {
			return fmt.Errorf("%s: run %d of %d has %d elements, %d are left", c.Name(), r, len(counts), kept, len(places))
		}
		for i, at := range places[:kept] {
			if int(at) >= len(part) {
				return fmt.Errorf("%s: run %d of %d has the element %d of %d", c.Name(), r, len(counts), at, len(part))
			}
			part[at] += dtype.BFloat16(binary.LittleEndian.Uint16(values[2*i:])).Float32()
		}
		places, values = places[kept:], values[2*kept:]
	}
	if len(places) > 0 {
		return fmt.Errorf("%s: %d elements belong to no run", c.Name(), len(places))
	}
	return nil
}

// magnitude is the absolute value as a number that sorts like it: NaN is above all.
func magnitude(x float32) uint32 { return math.Float32bits(x) &^ (1 << 31) }

// threshold returns the magnitude of the k-th largest element, and how many elements of
// just that magnitude are among the k. It fixes 8 bits at a time, from the top: 4 passes,
// and no memory.
func threshold(v []float32, k int) (least uint32, equal int) {
	mask := uint32(0) // of the bits that are fixed
	for shift := 24; shift >= 0; shift -= 8 {
		var count [256]int
		for _, x := range v {
			if m := magnitude(x); m&mask == least {
				count[m>>shift&255]++
			}
		}
		digit := uint32(255)
		for ; count[digit] < k; digit-- {
			k -= count[digit]
		}
		least |= digit << shift
		mask |= 255 << shift
	}
	return least, k
}
