package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// prime is 2^61 - 1: what exceeds it folds by a shift and an addition.
const prime = 1<<61 - 1

// block is how many elements have coefficients of their own. An element's coefficient is
// that of its place in the block times that of the block, so that few have to be drawn.
const block = 1024

// offset makes an int32 an unsigned number.
const offset = 1 << 31

// Seed is where the coefficients of a step come from.
type Seed [32]byte

// SeedOf returns the seed of a step, of the nonces of all ranks.
func SeedOf(step int64, nonces []uint64) Seed {
	b := []byte("elrun audit")
	b = binary.LittleEndian.AppendUint64(b, uint64(step))
	for _, n := range nonces {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return sha256.Sum256(b)
}

// Coefficients are those of a seed for vectors of one length. They are read only.
type Coefficients struct {
	within []uint64 // of the places in a block
	upTo   []uint64 // offset times the sum of as many of these from the first on
	blocks []uint64
}

// Draw returns the coefficients for vectors of n elements. They are of ChaCha8: nobody can tell
// one from the others. It is called in each step, before the optimizer: BLAKE3 with AVX-512 would
// be as good, but leaves vector registers in use, and floating-point code that is not
// vectorised then takes several times as long.
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

// Print is a fingerprint, below prime. None stands for one that is not told.
type Print uint64

// None is no fingerprint.
const None Print = prime

// Of returns the fingerprint of v, which has the length that the coefficients were drawn for.
func (c Coefficients) Of(v []int32) Print {
	var total uint64
	for _, r := range c.blocks {
		n := min(len(v), block)
		total = add(total, multiply(r, c.inBlock(v[:n])))
		v = v[n:]
	}
	return Print(total)
}

// inBlock returns the sum over one block. Products of 61 and 32 bits are added up in 128, as
// there are no more than 1,024.
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

// Sum returns the fingerprint of the sum of vectors with these fingerprints, or None if one
// of them is.
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
	// 2^61 is 1, so that parts of 61 bits are added up.
	s := low&prime + (low>>61 | high<<3&prime) + high>>58
	s = s&prime + s>>61
	if s >= prime {
		s -= prime
	}
	return s
}
