package trainer

import "math/bits"

// permutation is the order of the samples in one pass: a permutation of [0, n). It is a pure
// function of seed and pass, with random access and without a table, so every peer can compute
// the samples of any microbatch of any step.
//
// It is a Feistel network on the smallest even number of bits that holds n-1, applied until the
// value falls below n: cycle walking (Black and Rogaway: Ciphers with arbitrary finite domains,
// 2002). The network permutes fewer than 4n values, so this takes fewer than 4 applications on
// average. Each walk ends, because the cycle returns to its first value, which is below n.
type permutation struct {
	n    uint64                // number of samples
	half uint                  // bits of each half
	keys [feistelRounds]uint64 // one per round
}

// feistelRounds exceeds the 4 rounds that make a Feistel network of random functions pseudorandom
// (Luby and Rackoff, 1988), because the round functions are simple and small domains need more rounds.
const feistelRounds = 7

// newPermutation returns the order of n >= 1 samples in a pass.
func newPermutation(seed uint64, pass int64, n int) permutation {
	o := permutation{n: uint64(n), half: uint(bits.Len64(uint64(n-1))+1) / 2}
	state := mix(seed) + uint64(pass)
	for i := range o.keys {
		state = mix(state + 0x9e3779b97f4a7c15)
		o.keys[i] = state
	}
	return o
}

// at returns the sample at position i of the pass, for i in [0, n).
func (p permutation) at(i int) int {
	v := p.permute(uint64(i))
	for v >= p.n {
		v = p.permute(v)
	}
	return int(v)
}

// permute is a bijection on the values of 2*half bits.
func (p permutation) permute(v uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	left, right := v>>p.half, v&mask
	for _, k := range p.keys {
		left, right = right, left^(mix(right+k)&mask)
	}
	return left<<p.half | right
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, 2014), a bijection in which
// every bit of the result depends on every bit of v.
func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
