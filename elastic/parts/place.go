package parts

import (
	"cmp"
	"slices"
)

// holdings are what the members of a session hold, and what decides where pieces go. All members have
// the same holdings, and compute the same placement in integers.
type holdings struct {
	holders [][]int // by piece, the ranks that hold it, ascending
	owner   []int   // by piece, the rank that was the owner; -1 if it is gone
	weights []int   // by rank; 0: gets no pieces
	hosts   []int   // by rank, the number of the host
}

// Words that a member tells in gather, before two bits for each piece: whether it holds it, and whether
// it is the owner.
const (
	wordShape = iota // a hash of what must be equal
	wordWeight
	wordBits
)

// read adds what a member tells. It accepts any words. Ranks are read in ascending order.
func (h *holdings) read(rank int, words []uint64) {
	h.weights[rank] = int(max(1, min(words[wordWeight], MaxWeight)))
	for k := range h.owner {
		bits := words[wordBits+2*k/64] >> (2 * k % 64)
		if bits&1 == 1 {
			h.holders[k] = append(h.holders[k], rank)
		}
		if bits&3 == 3 {
			h.owner[k] = rank
		}
	}
}

// leave takes all pieces from ranks that leave, unless nobody stays.
func (h *holdings) leave(ranks []int) {
	if len(ranks) == len(h.weights) {
		return
	}
	for _, r := range ranks {
		h.weights[r] = 0
	}
}

// vacant returns the pieces that nobody holds.
func (h *holdings) vacant() (lost []int) {
	for k, ranks := range h.holders {
		if len(ranks) == 0 {
			lost = append(lost, k)
		}
	}
	return lost
}

// place returns the holders of each piece: the owner, then the copies. Owners follow the weights by
// largest remainders. As many pieces as possible stay with one of their holders, and of these as many
// as that allows with their owner. A copy is on another host than the earlier holders of its piece, if
// there is one, and stays where it is, if the weights allow it. The other copies go to the next ranks
// after the owner.
func (h *holdings) place(copies int) [][]int {
	out := make([][]int, len(h.holders))
	staying := 0
	for _, w := range h.weights {
		staying += min(w, 1)
	}
	for range min(copies+1, staying) {
		h.extend(out)
	}
	return out
}

// extend gives each piece one more holder.
func (h *holdings) extend(out [][]int) {
	m := matching{holdings: h, out: out, at: make([]int, len(out)), of: make([][]int, len(h.weights)), full: make([]bool, len(h.weights))}
	m.quota = h.quotas(m.held())
	for k := range m.at {
		m.at[k] = -1
	}
	if len(out) > 0 && len(out[0]) == 0 {
		for k, r := range h.owner {
			if r >= 0 && m.allowed(k, r) && len(m.of[r]) < m.quota[r] {
				m.put(k, r)
			}
		}
	}
	for k := range out {
		if m.at[k] < 0 {
			m.search(k)
		}
	}
	for k := range out {
		if m.at[k] < 0 {
			m.put(k, m.next(k))
		}
	}
	for k, r := range m.at {
		out[k] = append(out[k], r)
	}
}

// quotas divides the pieces among the ranks, in proportion to the weights, by the method of largest
// remainders (Hamilton). Of equal remainders the rank that holds more pieces comes first.
func (h *holdings) quotas(held []int) []int {
	sum, left, order := 0, len(h.holders), make([]int, len(h.weights))
	for _, w := range h.weights {
		sum += w
	}
	quota := make([]int, len(h.weights))
	for r, w := range h.weights {
		quota[r], order[r] = len(h.holders)*w/sum, r
		left -= quota[r]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(h.holders)*h.weights[b]%sum, len(h.holders)*h.weights[a]%sum), cmp.Compare(held[b], held[a]))
	})
	for _, r := range order[:left] {
		quota[r]++
	}
	return quota
}

// matching assigns each piece to one of its holders within quotas, for as many pieces as possible. It
// is a matching of a bipartite graph by augmenting paths (Kuhn), whose one side has capacities.
type matching struct {
	*holdings
	out   [][]int // by piece, the holders of earlier extensions
	quota []int   // by rank
	at    []int   // by piece, the rank; -1 for none
	of    [][]int // by rank, its pieces
	full  []bool  // by rank: it is full, and its pieces have no way to a rank that is not
}

// held returns for each rank the number of its pieces that can stay in this extension: those of which
// it was the owner, or those that it holds besides the earlier holders.
func (m *matching) held() []int {
	held := make([]int, len(m.weights))
	for k, ranks := range m.holders {
		for _, r := range ranks {
			if len(m.out[k]) == 0 && m.owner[k] == r || len(m.out[k]) > 0 && !slices.Contains(m.out[k], r) {
				held[r]++
			}
		}
	}
	return held
}

// allowed reports whether a rank may hold a piece besides its earlier holders.
func (m *matching) allowed(k, r int) bool {
	if m.weights[r] == 0 || slices.Contains(m.out[k], r) {
		return false
	}
	if m.away(k, r) {
		return true
	}
	for o, w := range m.weights {
		if w > 0 && m.away(k, o) {
			return false
		}
	}
	return true
}

// away reports whether a rank is on another host than the earlier holders of a piece.
func (m *matching) away(k, r int) bool {
	return !slices.ContainsFunc(m.out[k], func(o int) bool { return m.hosts[o] == m.hosts[r] })
}

// put assigns a piece to a rank.
func (m *matching) put(k, r int) { m.at[k], m.of[r] = r, append(m.of[r], k) }

// search assigns a piece by find. If that fails, no later search needs the ranks that it has tried.
func (m *matching) search(k int) {
	seen := slices.Clone(m.full)
	if !m.find(k, seen) {
		m.full = seen
	}
}

// find assigns a piece to one of its holders, and moves other pieces among theirs if need be. It marks
// the ranks that it has tried.
func (m *matching) find(k int, seen []bool) bool {
	for _, r := range m.holders[k] {
		if seen[r] || !m.allowed(k, r) {
			continue
		}
		seen[r] = true
		if len(m.of[r]) < m.quota[r] {
			m.put(k, r)
			return true
		}
		for i, other := range m.of[r] {
			if m.find(other, seen) {
				m.at[k], m.of[r][i] = r, k
				return true
			}
		}
	}
	return false
}

// next returns the rank for a piece that cannot stay within the quotas: after the owner the next rank
// that is not full. If all that are allowed are full, as where a host has few members, it is a rank that
// holds the piece, or else the one with the fewest pieces for its weight.
func (m *matching) next(k int) int {
	n, first, best, holds := len(m.weights), -1, -1, false
	if len(m.out[k]) > 0 {
		first = m.out[k][0]
	}
	for i := range n {
		r := (first + 1 + i) % n
		switch {
		case !m.allowed(k, r):
			continue
		case len(m.of[r]) < m.quota[r]:
			return r
		}
		here := slices.Contains(m.holders[k], r)
		if best < 0 || here && !holds || here == holds && len(m.of[r])*m.weights[best] < len(m.of[best])*m.weights[r] {
			best, holds = r, here
		}
	}
	return best
}
