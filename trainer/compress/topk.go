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
// rounded to bfloat16, or to 2 bits. The others wait in what Encode leaves, and so does what
// rounding takes away. At says how a training begins.
//
// The code of n elements, of which it keeps k: for each run of 255 elements a byte, how
// many are kept of it; k bytes, their places in the run, ascending; and k times 2 bytes,
// their values. With 2 bits the values are (level.go): for each chunk of 16 runs two
// magnitudes, the smaller one first, as bfloat16; then k times 2 bits, from the lowest of each
// byte on, of which the first is the sign and the second tells the larger magnitude.
type TopK struct {
	fraction float64
	twoBit   bool
}

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
	k.fraction = max(fraction, k.fraction)
	return k
}

// NewTopK returns the coding that keeps a fraction of the elements, above 0 and up to
// 0.5, and at least 256 or all of them, as bfloat16.
func NewTopK(fraction float64) (TopK, error) {
	if !(fraction > 0 && fraction <= 0.5) {
		return TopK{}, fmt.Errorf("compression topk: a fraction of %v, want above 0 and up to 0.5", fraction)
	}
	return TopK{fraction: fraction}, nil
}

// In2Bits returns the coding of the same elements with values of 2 bits: a sign, and one of two
// magnitudes of their chunk (SparseLoCo: Sarfi and others, arXiv 2508.15706).
func (c TopK) In2Bits() TopK {
	c.twoBit = true
	return c
}

// Name returns "topk:" and the fraction, and ":2bit" for values of 2 bits.
func (c TopK) Name() string {
	name := "topk:" + strconv.FormatFloat(c.fraction, 'g', -1, 64)
	if c.twoBit {
		name += ":" + twoBit
	}
	return name
}

// twoBit is how Parse and Name spell values of 2 bits.
const twoBit = "2bit"

// Sparse returns true.
func (TopK) Sparse() bool { return true }

// Size returns a byte for each run, and 3 for each element that is kept; with values of 2 bits
// 1 and a quarter, and 4 for each chunk.
func (c TopK) Size(n int) int { return runs(n) + c.keeps(n) + c.valueBytes(n) }

// valueBytes is how many bytes the values of n elements have.
func (c TopK) valueBytes(n int) int {
	if c.twoBit {
		return levelBytes*chunks(n) + (c.keeps(n)+3)/4
	}
	return 2 * c.keeps(n)
}

// keeps returns how many of n elements the code has.
func (c TopK) keeps(n int) int {
	return min(n, max(leastKept, int(math.Ceil(c.fraction*float64(n)))))
}

// runs returns how many runs n elements have.
func runs(n int) int { return (n + run - 1) / run }

// parts cuts a code for n elements.
func (c TopK) parts(code []byte, n int) (counts, places, values []byte) {
	r, k := runs(n), c.keeps(n)
	return code[:r], code[r : r+k], code[r+k : c.Size(n)]
}

// Encode implements collective.Coding.
func (c TopK) Encode(code []byte, v []float32) {
	counts, places, values := c.parts(code, len(v))
	pick(counts, places, v)
	if c.twoBit {
		encodeLevels(values, counts, places, v)
		return
	}
	for r, count := range counts {
		part, kept := v[r*run:], int(count)
		for i, at := range places[:kept] {
			h := dtype.ToBFloat16(part[at])
			binary.LittleEndian.PutUint16(values[2*i:], uint16(h))
			part[at] -= h.Float32()
		}
		places, values = places[kept:], values[2*kept:]
	}
}

// pick notes the places of the elements that are kept, as many as places has.
func pick(counts, places []byte, v []float32) {
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
			places[kept] = byte(i)
			kept++
		}
		counts[r] = byte(kept)
		places = places[kept:]
	}
}

// Add implements collective.Coding.
func (c TopK) Add(dst []float32, code []byte) error {
	counts, places, values := c.parts(code, len(dst))
	if err := c.check(counts, places, len(dst)); err != nil {
		return err
	}
	if c.twoBit {
		addLevels(dst, values, counts, places)
		return nil
	}
	for r, count := range counts {
		part, kept := dst[r*run:], int(count)
		for i, at := range places[:kept] {
			part[at] += dtype.BFloat16(binary.LittleEndian.Uint16(values[2*i:])).Float32()
		}
		places, values = places[kept:], values[2*kept:]
	}
	return nil
}

// check wants places that are those of n elements.
func (c TopK) check(counts, places []byte, n int) error {
	for r, count := range counts {
		size, kept := min(run, n-r*run), int(count)
		if kept > len(places) {
			return fmt.Errorf("%s: run %d of %d has %d elements, %d are left", c.Name(), r, len(counts), kept, len(places))
		}
		for _, at := range places[:kept] {
			if int(at) >= size {
				return fmt.Errorf("%s: run %d of %d has the element %d of %d", c.Name(), r, len(counts), at, size)
			}
		}
		places = places[kept:]
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
