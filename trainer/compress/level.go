package compress

import (
	"encoding/binary"
	"math"

	"github.com/elrun/elrun/dtype"
)

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
