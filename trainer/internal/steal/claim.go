package steal

import (
	"fmt"

	"github.com/elrun/elrun/trainer/internal/ledger"
)

// MaxClaims is the greatest number of thefts of a rank in a step.
const MaxClaims = 4

// Claim is a range of positions that a rank has taken from another rank and computed.
type Claim struct{ First, End int }

// Word encodes the claim for the commit record; only an empty claim is 0.
func (c Claim) Word() int64 {
	if c.End <= c.First {
		return 0
	}
	return int64(c.First)<<32 | int64(c.End-c.First)
}

// ClaimOf decodes the result of Word.
func ClaimOf(w int64) Claim {
	first := int(w >> 32)
	return Claim{first, first + int(uint32(w))}
}

// Report is what the commit record says of a rank.
type Report struct {
	Claims [MaxClaims]Claim // in the order of the thefts; the others are empty
	Print  uint64           // of what the rank holds
}

// Held returns the microbatches that each rank holds at the end of a step: its share without the
// claims of others, and its own claims. order has the microbatch at each position. Without claims the
// result is shares itself. An error means that a claim is outside of the order, that two claims
// overlap, or that a rank holds something else.
func Held(shares []ledger.Set, order []int, reports []Report) ([]ledger.Set, error) {
	held := shares
	claimed := make(map[int]int) // rank by position
	for r, o := range reports {
		for _, c := range o.Claims {
			if c == (Claim{}) {
				continue
			}
			if len(claimed) == 0 {
				held = cloned(shares)
			}
			if err := c.move(held, order, r, claimed); err != nil {
				return nil, err
			}
		}
	}
	for r, o := range reports {
		if got := Print(held[r]); got != o.Print {
			return nil, fmt.Errorf("rank %d holds other microbatches than %v: the print is %016x, and not %016x", r, held[r].Ranges(), o.Print, got)
		}
	}
	return held, nil
}

// cloned copies sets.
func cloned(all []ledger.Set) (out []ledger.Set) {
	for _, s := range all {
		out = append(out, s.Clone())
	}
	return out
}

// move gives the microbatches of the claim to rank r, which must be the only one that claims them.
func (c Claim) move(held []ledger.Set, order []int, r int, claimed map[int]int) error {
	if c.First < 0 || c.End < c.First || c.End > len(order) {
		return fmt.Errorf("rank %d has claimed the positions %d to %d of %d", r, c.First, c.End, len(order))
	}
	for p := c.First; p < c.End; p++ {
		if other, there := claimed[p]; there {
			return fmt.Errorf("ranks %d and %d have both claimed microbatch %d", other, r, order[p])
		}
		claimed[p] = r
		for _, h := range held {
			h.Remove(order[p])
		}
		held[r].Add(order[p])
	}
	return nil
}

// Print returns a fingerprint of a set. Sets that differ have different fingerprints, except for
// chance.
func Print(s ledger.Set) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, over words
	for _, w := range s {
		h = (h ^ w ^ w>>32) * 1099511628211
		h ^= h >> 29
	}
	return h
}
