package trainer

import "math/bits"

// linkCost is the cost of a link as it travels: microseconds for a MiB, rounded to four
// bits, so steps of about a tenth. It counts steps; 0 stands for a link that is not
// known.
type linkCost uint8

// maxLinkCost is the greatest linkCost, of four hours.
const maxLinkCost linkCost = 1 + 8*30 + 7

// linkCostOf rounds a cost, at least 1, to the nearest linkCost.
func linkCostOf(cost int64) linkCost {
	cost = max(cost, 8)
	shift := bits.Len64(uint64(cost)) - 4
	m := cost >> shift
	if shift > 0 {
		m += cost >> (shift - 1) & 1
	}
	// A mantissa of 16 is that of 8 with the next exponent.
	return linkCost(min(int64(maxLinkCost), 1+8*int64(shift)+m-8))
}

// micros is the inverse of linkCostOf; 0 for a link that is not known.
func (p linkCost) micros() int64 {
	if p == 0 {
		return 0
	}
	return (8 + int64(p-1)%8) << (int64(p-1) / 8)
}

// differs reports whether two costs are further apart than noise takes them.
func (p linkCost) differs(q linkCost) bool { return p == 0 != (q == 0) || p > q+1 || q > p+1 }

// linkUpdates is what a report tells of links to its rank: of up to maxLinkUpdates ranks, packed by two
// into a word, the number of the rank plus 1 and the cost.
type linkUpdates [maxLinkUpdates / 2]int64

// maxLinkUpdates is how many links a report has room for. A rank measures one or two in a step,
// and more only as a session begins.
const maxLinkUpdates = 4

// put writes entry i.
func (n *linkUpdates) put(i, from int, p linkCost) {
	n[i/2] |= (int64(from+1)<<8 | int64(p)) << (i % 2 * 32)
}

// each calls visit for each entry.
func (n linkUpdates) each(visit func(from int, p linkCost)) {
	for i := range maxLinkUpdates {
		if w := uint32(n[i/2] >> (i % 2 * 32)); w != 0 {
			visit(int(w>>8)-1, linkCost(w))
		}
	}
}
