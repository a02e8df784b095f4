package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
)

// TopK keeps a fraction of the elements, the largest by magnitude, and rounds each to bfloat16 or
// to 2 bits (top-k sparsification). Encode leaves in its argument the elements that it does not
// keep, and the rounding errors of the elements that it keeps. At increases the fraction in the
// first steps of a training.
//
// The code of n elements, of which k are kept, has three parts: one byte for each run of 255
// elements, the number of elements kept in it; k bytes, their positions in the run, ascending; k
// times 2 bytes, their values. With values of 2 bits the last part is: for each chunk of 16 runs
// two bfloat16 magnitudes, the smaller one first; then k times 2 bits, four values in a byte, the
// first in the low bits. Of the 2 bits of a value, bit 0 is the sign, and bit 1 is set for the
// larger magnitude (levelsOf).
type TopK struct {
	// fraction is the part of the elements that is kept, at most 0.5.
	fraction float64
	twoBit   bool // values have 2 bits instead of 16
}

// minKept is the least number of elements that a code keeps; a shorter vector is kept whole. So
// biases and the last layer, which have few but important elements, are sent often.
const minKept = 256

// run is the number of elements of a run: each position in a run, and the number of elements kept
// in it, fits one byte.
const run = 255

// A training begins with a larger fraction: warmupFraction in the first warmupSteps steps, half of
// it in the next warmupSteps steps, and so on. The reason is that an element which is not kept is
// delayed by about 1/fraction steps on average, and a model changes fastest in its first steps. The
// additional elements are at most as many as in warmupSteps/4 steps without compression.
const (
	warmupFraction = 0.125
	warmupSteps    = 32
)

// At returns the coding for a step, from 1, of a training with the coding c: a TopK with a larger
// fraction in the first steps (the warm-up of Lin and others 2018), or else c itself. Halving a
// fraction is exact, so peers on all architectures agree on the size of codes.
func At(c collective.Coding, step int64) collective.Coding {
	k, ok := c.(TopK)
	if !ok {
		return c
	}
	fraction := warmupFraction
	for ; step > warmupSteps && fraction > k.fraction; step -= warmupSteps {
		fraction /= 2
	}
	k.fraction = max(fraction, k.fraction)
	return k
}

// NewTopK returns a TopK that keeps a fraction of the elements, 0 < fraction <= 0.5, but at least
// 256 elements or all of them. Values are bfloat16.
func NewTopK(fraction float64) (TopK, error) {
	if !(fraction > 0 && fraction <= 0.5) {
		return TopK{}, fmt.Errorf("compression topk: a fraction of %v, want above 0 and up to 0.5", fraction)
	}
	return TopK{fraction: fraction}, nil
}

// In2Bits returns a TopK of the same elements with values of 2 bits: a sign, and one of two
// magnitudes of the chunk (SparseLoCo: Sarfi and others, arXiv 2508.15706).
func (t TopK) In2Bits() TopK {
	t.twoBit = true
	return t
}

// Name returns "topk:" and the fraction, followed by ":2bit" for values of 2 bits.
func (t TopK) Name() string {
	name := "topk:" + strconv.FormatFloat(t.fraction, 'g', -1, 64)
	if t.twoBit {
		name += ":" + twoBit
	}
	return name
}

// twoBit is the suffix of names for values of 2 bits.
const twoBit = "2bit"

// Sparse returns true.
func (TopK) Sparse() bool { return true }

// Size returns the bytes of the code of n elements: one for each run and 3 for each kept element.
// With values of 2 bits a kept element takes 1.25 bytes, and each chunk takes 4.
func (t TopK) Size(n int) int { return runs(n) + t.kept(n) + t.valueBytes(n) }

// valueBytes returns the bytes of the values in the code of n elements.
func (t TopK) valueBytes(n int) int {
	if t.twoBit {
		return levelBytes*chunks(n) + (t.kept(n)+3)/4
	}
	return 2 * t.kept(n)
}

// kept returns the number of elements that a code of n elements keeps.
func (t TopK) kept(n int) int {
	return min(n, max(minKept, int(math.Ceil(t.fraction*float64(n)))))
}

// runs returns the number of runs of n elements.
func runs(n int) int { return (n + run - 1) / run }

// split splits a code of n elements into its parts.
func (t TopK) split(code []byte, n int) (counts, positions, values []byte) {
	r, k := runs(n), t.kept(n)
	return code[:r], code[r : r+k], code[r+k : t.Size(n)]
}

// Encode implements collective.Coding.
func (t TopK) Encode(code []byte, v []float32) {
	counts, positions, values := t.split(code, len(v))
	selectLargest(counts, positions, v)
	if t.twoBit {
		encodeLevels(values, counts, positions, v)
		return
	}
	for r, count := range counts {
		part, kept := v[r*run:], int(count)
		for i, at := range positions[:kept] {
			h := dtype.ToBFloat16(part[at])
			binary.LittleEndian.PutUint16(values[2*i:], uint16(h))
			// v keeps the rounding error.
			part[at] -= h.Float32()
		}
		positions, values = positions[kept:], values[2*kept:]
	}
}

// selectLargest selects the len(positions) largest elements of v by magnitude. It writes the number
// of selected elements in each run to counts, and their positions within the run to positions. If
// more elements than needed have the smallest selected magnitude, it takes the first of them, so
// that the number is exact.
func selectLargest(counts, positions []byte, v []float32) {
	lowest, equal := threshold(v, len(positions))
	for r := range counts {
		part := v[r*run : min((r+1)*run, len(v))]
		kept := 0
		for i, x := range part {
			m := magnitude(x)
			if m < lowest || m == lowest && equal == 0 {
				continue
			}
			if m == lowest {
				equal--
			}
			positions[kept] = byte(i)
			kept++
		}
		counts[r] = byte(kept)
		positions = positions[kept:]
	}
}

// Add implements collective.Coding. If the positions in the code are invalid, it returns an error
// and does not change dst.
func (t TopK) Add(dst []float32, code []byte) error {
	counts, positions, values := t.split(code, len(dst))
	if err := t.check(counts, positions, len(dst)); err != nil {
		return err
	}
	if t.twoBit {
		addLevels(dst, values, counts, positions)
		return nil
	}
	for r, count := range counts {
		part, kept := dst[r*run:], int(count)
		for i, at := range positions[:kept] {
			part[at] += dtype.BFloat16(binary.LittleEndian.Uint16(values[2*i:])).Float32()
		}
		positions, values = positions[kept:], values[2*kept:]
	}
	return nil
}

// check returns an error unless counts and positions are valid for n elements. A code comes from
// another peer, so Add must not write outside dst.
func (t TopK) check(counts, positions []byte, n int) error {
	for r, count := range counts {
		size, kept := min(run, n-r*run), int(count)
		if kept > len(positions) {
			return fmt.Errorf("%s: malformed code: the count of run %d of %d is %d, but only %d positions are left", t.Name(), r, len(counts), kept, len(positions))
		}
		for _, at := range positions[:kept] {
			if int(at) >= size {
				return fmt.Errorf("%s: malformed code: run %d of %d has position %d, but only %d elements", t.Name(), r, len(counts), at, size)
			}
		}
		positions = positions[kept:]
	}
	if len(positions) > 0 {
		return fmt.Errorf("%s: malformed code: %d more positions than its counts add up to", t.Name(), len(positions))
	}
	return nil
}

// magnitude returns the absolute value of x as an integer. Larger values give larger integers, and
// NaN gives the largest.
func magnitude(x float32) uint32 { return math.Float32bits(x) &^ (1 << 31) }

// threshold returns the magnitude of the k-th largest element of v, and how many elements of
// exactly that magnitude are among the k largest. It is a radix selection of 8 bits at a time
// from the top: 4 passes over v without extra memory.
func threshold(v []float32, k int) (lowest uint32, equal int) {
	mask := uint32(0) // the bits of lowest that are known
	for shift := 24; shift >= 0; shift -= 8 {
		var count [256]int
		for _, x := range v {
			if m := magnitude(x); m&mask == lowest {
				count[m>>shift&255]++
			}
		}
		digit := uint32(255)
		for ; count[digit] < k; digit-- {
			k -= count[digit]
		}
		lowest |= digit << shift
		mask |= 255 << shift
	}
	return lowest, k
}

// Values of 2 bits are grouped into chunks with two magnitudes each. To find the magnitudes, the
// kept values of a chunk are split at their mean magnitude, and then repeatedly at the midpoint of
// the means of both parts (Lloyd's algorithm: Least squares quantization in PCM, 1957). The squared
// error is then close to the least possible error.
const (
	splits     = 8               // maximum number of iterations of Lloyd's algorithm
	chunkRuns  = 16              // runs of a chunk
	chunk      = chunkRuns * run // elements of a chunk
	levelBytes = 4               // bytes of a chunk's two magnitudes
)

// chunks returns the number of chunks of n elements.
func chunks(n int) int { return (n + chunk - 1) / chunk }

// levelPair has the two magnitudes of a chunk, the smaller magnitude first.
type levelPair [2]float32

// levelsOf returns the two magnitudes for values, rounded to bfloat16, and the threshold from:
// values whose magnitude is at least from are coded as the second magnitude. A value that is not
// finite makes the second magnitude not finite.
func levelsOf(values []float32) (pair levelPair, from float64) {
	var mean [2]float64
	for range 1 + splits { // in the first iteration all values are in the second part
		var sum, count [2]float64
		for _, x := range values {
			side := sideOf(x, from)
			sum[side] += math.Abs(float64(x))
			count[side]++
		}
		mean = [2]float64{sum[0] / max(1, count[0]), sum[1] / max(1, count[1])}
		next := (mean[0] + mean[1]) / 2
		if count[0] == 0 {
			next = mean[1]
		}
		// Stop when the split no longer changes, or if a value is not finite.
		if next == from || next-next != 0 {
			break
		}
		from = next
	}
	return levelPair{dtype.ToBFloat16(float32(mean[0])).Float32(), dtype.ToBFloat16(float32(mean[1])).Float32()}, from
}

// sideOf returns 0 for magnitudes below the threshold from, and 1 for others and for NaN.
func sideOf(x float32, from float64) int {
	if math.Abs(float64(x)) < from {
		return 0
	}
	return 1
}

// encodeLevels codes the kept elements of v into values, and subtracts the coded values from v.
// counts has the number of kept elements of each run, and positions has the positions of these
// elements in their runs.
func encodeLevels(values, counts, positions []byte, v []float32) {
	levels, bits := values[:levelBytes*chunks(len(v))], values[levelBytes*chunks(len(v)):]
	clear(bits)
	k := 0 // index of the next kept element
	for c := range chunks(len(v)) {
		// The array, which is on the stack, has all kept values of the chunk, because the
		// magnitudes depend on all of them.
		var kept [chunk]float32
		at, n := gather(&kept, counts[c*chunkRuns:min((c+1)*chunkRuns, len(counts))], positions, v[c*chunk:])
		pair, from := levelsOf(kept[:n])
		for side, level := range pair {
			binary.LittleEndian.PutUint16(levels[levelBytes*c+2*side:], uint16(dtype.ToBFloat16(level)))
		}
		for i, x := range kept[:n] {
			side := sideOf(x, from)
			value, code := pair[side], byte(side)<<1
			if math.Signbit(float64(x)) {
				value, code = -value, code|1
			}
			bits[k/4] |= code << (k % 4 * 2)
			v[c*chunk+int(at[i])] = x - value
			k++
		}
		positions = positions[n:]
	}
}

// gather copies the kept elements of one chunk, which begins at v[0], to kept. It returns their
// offsets in the chunk and their number.
func gather(kept *[chunk]float32, counts, positions []byte, v []float32) (at [chunk]uint16, n int) {
	for r, count := range counts {
		for _, place := range positions[n : n+int(count)] {
			at[n] = uint16(r*run + int(place))
			kept[n] = v[at[n]]
			n++
		}
	}
	return at, n
}

// addLevels decodes values and adds them to dst. counts and positions have passed TopK.check.
func addLevels(dst []float32, values, counts, positions []byte) {
	levels, bits := values[:levelBytes*chunks(len(dst))], values[levelBytes*chunks(len(dst)):]
	k := 0
	for r, count := range counts {
		pair := levels[r/chunkRuns*levelBytes:]
		low, high := float(pair), float(pair[2:])
		value := [4]float32{low, -low, high, -high}
		part := dst[r*run:]
		for _, at := range positions[k : k+int(count)] {
			part[at] += value[bits[k/4]>>(k%4*2)&3]
			k++
		}
	}
}

// float decodes a little-endian bfloat16.
func float(b []byte) float32 { return dtype.BFloat16(binary.LittleEndian.Uint16(b)).Float32() }
