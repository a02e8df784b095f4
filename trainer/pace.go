package trainer

import "math/bits"

// pace is the cost of a link as it travels: microseconds for a MiB, rounded to four
// bits, so steps of about a tenth. It counts steps; 0 stands for a link that is not
// known.
type pace uint8

// mostPace is the slowest pace, of four hours.
const mostPace pace = 1 + 8*30 + 7

// paceOf rounds a cost, at least 1, to the nearest pace.
func paceOf(cost int64) pace {
	cost = max(cost, 8)
	shift := bits.Len64(uint64(cost)) - 4
	m := cost >> shift
	if shift > 0 {
		m += cost >> (shift - 1) & 1
	}
	// A mantissa of 16 is that of 8 with the next exponent.
	return pace(min(int64(mostPace), 1+8*int64(shift)+m-8))
}

// cost is the inverse of paceOf; 0 for a link that is not known.
func (p pace) cost() int64 {
	if p == 0 {
		return 0
	}
	return (8 + int64(p-1)%8) << (int64(p-1) / 8)
}

// differs reports whether two paces are further apart than noise takes them.
func (p pace) differs(q pace) bool { return p == 0 != (q == 0) || p > q+1 || q > p+1 }

// news is what a slot tells of links to its rank: of up to newsMost ranks, packed by two
// into a word, the number of the rank plus 1 and the pace.
type news [newsMost / 2]int64

// newsMost is how many links a slot has room for. A rank measures one or two in a step,
// and more only as a session begins.
const newsMost = 4

// put writes entry i.
func (n *news) put(i, from int, p pace) { n[i/2] |= (int64(from+1)<<8 | int64(p)) << (i % 2 * 32) }

// each calls visit for each entry.
func (n news) each(visit func(from int, p pace)) {
	for i := range newsMost {
		if w := uint32(n[i/2] >> (i % 2 * 32)); w != 0 {
			visit(int(w>>8)-1, pace(w))
		}
	}
}
