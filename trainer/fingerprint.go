package trainer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/elrun/elrun/internal/kernel"
)

// fingerprint tells a state from others: all ranks must have the same before a step.
type fingerprint struct {
	committed int64
	digest    uint64
}

// String describes the state in an error.
func (s fingerprint) String() string {
	return fmt.Sprintf("digest %016x after step %d", s.digest, s.committed)
}

// differing returns the ranks whose state is not that of the most, and this one. Of
// equal numbers the one of the lowest rank is right.
func differing(states []fingerprint) (wrong []int, right fingerprint) {
	count := make(map[fingerprint]int)
	for _, s := range states {
		count[s]++
	}
	right = states[0]
	for _, s := range states { // in rank order, so that ties fall alike everywhere
		if count[s] > count[right] {
			right = s
		}
	}
	for rank, s := range states {
		if s != right {
			wrong = append(wrong, rank)
		}
	}
	return wrong, right
}

// digestBytes is how much of the parameters a step takes a digest of, on average: its
// cost shall not show.
const digestBytes = 1 << 20

// digestDue reports whether the digest of the parameters after a step is taken: after
// each if they are small, else after one in so many. All peers come to the same.
func digestDue(step int64, params []Param) bool {
	elements := 0
	for _, p := range params {
		elements += len(p.Data)
	}
	return step%int64(ceilDiv(4*elements, digestBytes)) == 0
}

// digestText writes a digest for people; empty if it is not due.
func digestText(digest uint64) string {
	if digest == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", digest)
}

// digestOf is a quick fingerprint of the parameters, in declaration order. It is
// for comparing peers of one job; it does not resist forgery.
func digestOf(params [][]float32) uint64 {
	h := xxhash.New()
	for _, p := range params {
		h.Write(kernel.Bytes(p)) // never fails
	}
	return h.Sum64()
}

// sha256Of returns the SHA-256 of the parameters in declaration order,
// little-endian, in hexadecimal.
func sha256Of(params []Param) string {
	h := sha256.New()
	for _, p := range params {
		h.Write(kernel.Bytes(p.Data)) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
