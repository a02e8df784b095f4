package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// prime is the Mersenne prime 2^61 - 1. Reduction modulo this prime takes a shift and an addition.
const prime = 1<<61 - 1

// block is the number of elements with random coefficients of their own. An element's coefficient
// is the coefficient of its position in the block times the coefficient of the block, so that few
// random numbers have to be drawn.
const block = 1024

// offset is added to an int32 to make it unsigned; inBlock subtracts the effect on the sum.
const offset = 1 << 31

// Seed determines the coefficients of a step.
type Seed [32]byte

// SeedOf returns the seed of a step from the nonces of all ranks. Nobody can choose the seed, as
// long as one nonce is unpredictable.
func SeedOf(step int64, nonces []uint64) Seed {
	b := []byte("elrun audit")
	b = binary.LittleEndian.AppendUint64(b, uint64(step))
	for _, n := range nonces {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return sha256.Sum256(b)
}

// Coefficients are the random coefficients of a seed, for vectors of one length. They are
// immutable.
type Coefficients struct {
	within []uint64 // by position in a block
	upTo   []uint64 // [i] is offset times the sum of within[:i]
	blocks []uint64 // by block
}

// Draw returns the coefficients for vectors of n elements. They come from ChaCha8, so none can be
// predicted from the others. Draw runs in each step, before the optimizer. BLAKE3 with AVX-512
// would be as good, but leaves vector registers in use, which slows down scalar floating-point
// code several times.
func (s Seed) Draw(n int) Coefficients {
	draw := rand.NewChaCha8(s)
	c := Coefficients{within: make([]uint64, min(n, block)), blocks: make([]uint64, (n+block-1)/block)}
	for _, v := range [][]uint64{c.within, c.blocks} {
		for i := range v {
			v[i] = draw.Uint64() % prime
		}
	}
	c.upTo = make([]uint64, 1, len(c.within)+1)
	for i, r := range c.within {
		c.upTo = append(c.upTo, add(c.upTo[i], multiply(r, offset)))
	}
	return c
}

// Print is a fingerprint, a number below prime, or None if it is unknown.
type Print uint64

// None is the absence of a fingerprint.
const None Print = prime

// Of returns the fingerprint of v, whose length must be the n of Draw.
func (c Coefficients) Of(v []int32) Print {
	var total uint64
	for _, r := range c.blocks {
		n := min(len(v), block)
		total = add(total, multiply(r, c.inBlock(v[:n])))
		v = v[n:]
	}
	return Print(total)
}

// inBlock returns the sum over one block. The products of 61 and 32 bits are accumulated in 128
// bits without overflow, because there are at most 1,024.
func (c Coefficients) inBlock(v []int32) uint64 {
	var high, low, carry uint64
	within := c.within[:len(v)]
	for i, x := range v {
		h, l := bits.Mul64(within[i], uint64(int64(x)+offset))
		low, carry = bits.Add64(low, l, 0)
		high += h + carry
	}
	return subtract(reduce(high, low), c.upTo[len(v)])
}

// Sum returns the fingerprint of the sum of vectors with these fingerprints, or None if one of
// them is None.
func Sum(prints []Print) Print {
	var total uint64
	for _, p := range prints {
		if p >= None {
			return None
		}
		total = add(total, uint64(p))
	}
	return Print(total)
}

// add returns a + b modulo prime.
func add(a, b uint64) uint64 {
	s := a + b
	if s >= prime {
		s -= prime
	}
	return s
}

// subtract returns a - b modulo prime.
func subtract(a, b uint64) uint64 { return add(a, prime-b) }

// multiply returns a * b modulo prime.
func multiply(a, b uint64) uint64 { return reduce(bits.Mul64(a, b)) }

// reduce returns high * 2^64 + low modulo prime.
func reduce(high, low uint64) uint64 {
	// 2^61 is 1 modulo prime, so the 61-bit parts are added up.
	s := low&prime + (low>>61 | high<<3&prime) + high>>58
	s = s&prime + s>>61
	if s >= prime {
		s -= prime
	}
	return s
}
