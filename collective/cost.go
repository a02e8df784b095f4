package collective

import (
	"math/bits"

	"github.com/elrun/elrun/collective/transport"
)

// Cost is the price of communication in Hockney's model (Hockney 1994): a message of S
// bytes takes Alpha + S*Beta seconds. Reducing S bytes takes S*Gamma seconds. The ranks of
// one host share its cores and links, so there each concurrent message adds to Alpha and
// Beta.
type Cost struct {
	Alpha float64 // seconds per message
	Beta  float64 // seconds per byte sent
	Gamma float64 // seconds per byte reduced
	// OtherAlpha and OtherBeta are the amounts that each concurrent message of another rank
	// adds to Alpha and Beta. They are 0 if every rank has a host and a link of its own.
	OtherAlpha, OtherBeta float64
}

// DefaultCost returns the costs of libp2p streams within one host.
func DefaultCost() Cost { return Cost{Alpha: 40e-6, Beta: 1.5e-9, Gamma: 0.25e-9} }

// load is the work of a call, in the units of Cost. Values "in sequence" lie on the
// critical path; the totals include all ranks.
type load struct {
	steps, messages float64 // messages in sequence; all messages
	path, bytes     float64 // bytes sent in sequence; all bytes
	folded          float64 // bytes reduced in sequence
	hidden          float64 // bytes reduced while the same number is received (overlapped)
}

// price returns the seconds that a call with a load takes among a number of ranks.
func (c Cost) price(l load, ranks int) float64 {
	messages := l.steps*c.Alpha + (l.messages-l.steps)*c.OtherAlpha
	bytes := l.path*c.Beta + (l.bytes-l.path)*c.OtherBeta
	crowded := c.Beta + float64(ranks-1)*c.OtherBeta
	return messages + bytes + l.folded*c.Gamma + l.hidden*max(c.shown()*c.Gamma, c.Gamma-crowded)
}

// shown returns the fraction of an overlapped reduction that takes time nevertheless, as
// measured on two cores: half if the cores themselves must move all bytes, nothing if each
// rank has its own core.
func (c Cost) shown() float64 {
	if c.OtherBeta == 0 {
		return 0
	}
	return min(0.5, c.OtherBeta/c.Beta)
}

// loadOf returns the load of a call for an algorithm (Thakur, Rabenseifner, Gropp 2005,
// section 4).
func loadOf(a Algorithm, n need) load {
	switch n.kind {
	case transport.KindAllReduce:
		return loadOfAllReduce(a, n)
	case transport.KindReduce:
		if a == Ring { // a reduce-scatter, then all to root
			return ringLoad(n, 1).and(directLoad(n.ranks, n.bytes))
		}
		return treeLoad(n.ranks, n.bytes).folding()
	case transport.KindReduceScatter:
		if a == Ring {
			return ringLoad(n, 1)
		}
		// Down again go parts, and then empty messages, as for all calls that have a root.
		down := blockLoad(n.ranks, n.bytes).and(load{steps: ceilLog(n.ranks), messages: float64(n.ranks) * ceilLog(n.ranks)})
		return treeLoad(n.ranks, n.bytes).folding().and(down)
	case transport.KindBroadcast:
		if a == Ring { // pipelined: the last rank's wait, and the vector once
			ranks := float64(n.ranks)
			return load{steps: 2 * ranks, messages: 2 * ranks, path: 1.2 * n.bytes, bytes: max(1.2, ranks-1) * n.bytes}
		}
		return treeLoad(n.ranks, n.bytes)
	case transport.KindAllGather:
		return loadOfAllGather(a, n)
	case transport.KindGather, transport.KindScatter:
		if a == Direct {
			return directLoad(n.ranks, n.bytes)
		}
		return blockLoad(n.ranks, n.bytes)
	}
	return load{}
}

// loadOfAllReduce is loadOf for KindAllReduce.
func loadOfAllReduce(a Algorithm, n need) load {
	power := 1 << (bits.Len(uint(n.ranks)) - 1) // the largest power of two of ranks; these pair up
	ranks, lg := float64(power), float64(bits.Len(uint(power))-1)
	var l load
	switch a {
	case RecursiveDoubling:
		l = load{steps: lg, messages: ranks * lg, path: lg * n.bytes, bytes: ranks * lg * n.bytes}.hiding(n.bytes, n.piece, lg)
	case Rabenseifner:
		part := share(power) * n.bytes
		l = load{steps: 2 * lg, messages: ranks * 2 * lg, path: 2 * part, bytes: ranks * 2 * part, folded: part}
	case Ring:
		return ringLoad(n, 2)
	default:
		return treeLoad(n.ranks, n.bytes).folding().and(treeLoad(n.ranks, n.bytes))
	}
	if rest := float64(n.ranks - power); rest > 0 { // the other ranks send their vectors to a neighbour and get the result back
		l.steps += 2
		l.messages += 2 * rest
		l.path += 2 * n.bytes
		l.bytes += 2 * rest * n.bytes
		l.folded += n.bytes
	}
	return l
}

// loadOfAllGather is loadOf for KindAllGather.
func loadOfAllGather(a Algorithm, n need) load {
	l := ringLoad(n, 1)
	l.folded, l.hidden = 0, 0
	switch {
	case a == Tree:
		return blockLoad(n.ranks, n.bytes).and(treeLoad(n.ranks, n.bytes))
	case a == RecursiveDoubling && isPowerOfTwo(n.ranks):
		l.steps = ceilLog(n.ranks)
		l.messages = float64(n.ranks) * l.steps
	default: // pipelined
		l.path *= 0.9
		l.bytes *= 0.9
	}
	return l
}

// hop is the time of a message around a ring in messages of other algorithms: a ring passes
// its messages to a second goroutine, which sends them. Measurements between two and three
// ranks of a host gave 1.4 to 1.7.
const hop = 1.5

// ringLoad returns the load of a number of rounds around a ring. The first round reduces.
func ringLoad(n need, rounds float64) load {
	ranks, part := float64(n.ranks), share(n.ranks)*n.bytes
	hops := rounds * (ranks - 1)
	l := load{steps: hop * hops, messages: hop*hops + (ranks-1)*hops, path: rounds * part, bytes: ranks * rounds * part}
	return l.hiding(n.bytes/ranks, n.piece, ranks-1)
}

// hiding adds a number of reductions of vectors of the given bytes, which arrive in pieces.
// Each piece is reduced while the next one arrives; only the last piece of a vector is not
// overlapped.
func (l load) hiding(bytes, piece, folds float64) load {
	last := min(bytes, piece)
	l.folded += folds * last
	l.hidden += folds * (bytes - last)
	return l
}

// treeLoad returns the load of a vector that goes up or down a binomial tree.
func treeLoad(n int, bytes float64) load {
	steps, messages := ceilLog(n), float64(n-1)
	return load{steps: steps, messages: messages, path: steps * bytes, bytes: messages * bytes}
}

// directLoad returns the load of a message between the root and each other rank.
func directLoad(n int, bytes float64) load {
	messages, part := float64(n-1), share(n)*bytes
	return load{steps: messages, messages: messages, path: part, bytes: part}
}

// blockLoad returns the load of a binomial tree in which a message has the parts of all
// ranks below its sender or receiver. The ranks on the way copy the parts.
func blockLoad(n int, bytes float64) load {
	l, part := treeLoad(n, 0), share(n)*bytes
	l.path, l.bytes, l.folded = part, max(part, bytes/2*ceilLog(n)), part
	return l
}

// folding adds a reduction of all received bytes.
func (l load) folding() load {
	l.folded += l.path
	return l
}

// and returns the load of l followed by m.
func (l load) and(m load) load {
	return load{l.steps + m.steps, l.messages + m.messages, l.path + m.path, l.bytes + m.bytes, l.folded + m.folded, l.hidden + m.hidden}
}

// share returns the fraction of a vector that each of n ranks sends if it keeps one part.
func share(n int) float64 { return float64(n-1) / float64(n) }

// ceilLog returns the binary logarithm of n, rounded up.
func ceilLog(n int) float64 { return float64(bits.Len(uint(n - 1))) }

func isPowerOfTwo(n int) bool { return n&(n-1) == 0 }
