package trainer

import "math/bits"

// linkCost is the cost of a link as sent on the wire: microseconds per MiB in a floating-point
// format with a mantissa of 4 bits, so that neighbouring values differ by about a tenth. 0 means
// unknown.
type linkCost uint8

// maxLinkCost is the largest linkCost, about four hours per MiB.
const maxLinkCost linkCost = 1 + 8*30 + 7

// linkCostOf rounds a cost in microseconds per MiB to the nearest linkCost. A cost below 8 counts as
// 8.
func linkCostOf(cost int64) linkCost {
	cost = max(cost, 8)
	shift := bits.Len64(uint64(cost)) - 4
	m := cost >> shift
	if shift > 0 {
		m += cost >> (shift - 1) & 1
	}
	// A mantissa of 16 becomes 8 with the next exponent.
	return linkCost(min(int64(maxLinkCost), 1+8*int64(shift)+m-8))
}

// micros returns the cost in microseconds per MiB, the inverse of linkCostOf; 0 for an unknown
// cost.
func (l linkCost) micros() int64 {
	if l == 0 {
		return 0
	}
	return (8 + int64(l-1)%8) << (int64(l-1) / 8)
}

// differs reports whether two costs differ by more than measurement noise, or only one is known.
func (l linkCost) differs(q linkCost) bool { return l == 0 != (q == 0) || l > q+1 || q > l+1 }

// linkUpdates are the measured links in a rank's report: up to maxLinkUpdates links to that rank. A
// word has two entries of 32 bits. An entry has the cost in the low 8 bits, and the sending rank
// plus 1 in the other bits; 0 means no entry.
type linkUpdates [maxLinkUpdates / 2]int64

// maxLinkUpdates is the number of links per report. A rank measures one or two links per step,
// and more only at the beginning of a session.
const maxLinkUpdates = 4

// put writes entry i, which must be empty.
func (l *linkUpdates) put(i, from int, p linkCost) {
	l[i/2] |= (int64(from+1)<<8 | int64(p)) << (i % 2 * 32)
}

// each calls visit for each entry.
func (l linkUpdates) each(visit func(from int, p linkCost)) {
	for i := range maxLinkUpdates {
		if w := uint32(l[i/2] >> (i % 2 * 32)); w != 0 {
			visit(int(w>>8)-1, linkCost(w))
		}
	}
}
