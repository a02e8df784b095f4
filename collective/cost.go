package collective

import (
	"math/bits"

	"github.com/elrun/elrun/collective/transport"
)

// Cost is the price of communication in the model of Hockney: a message of S bytes takes
// Alpha + S*Beta, folding S bytes takes S*Gamma, in seconds. Ranks of one host share its
// cores, so there each message that is sent at the same time adds something to both.
type Cost struct {
	Alpha float64 // seconds per message
	Beta  float64 // seconds per byte sent
	Gamma float64 // seconds per byte folded
	// OtherAlpha and OtherBeta are what each other message that goes at the same time adds
	// to Alpha and Beta: nothing where all ranks have a host and a link of their own.
	OtherAlpha, OtherBeta float64
}

// DefaultCost is that of libp2p streams on one host.
func DefaultCost() Cost { return Cost{Alpha: 40e-6, Beta: 1.5e-9, Gamma: 0.25e-9} }

// load is what a call does, in the units of Cost.
type load struct {
	steps, messages float64 // messages one after the other; all messages
	path, bytes     float64 // bytes sent one after the other; all bytes
	folded          float64 // bytes folded one after the other
	hidden          float64 // bytes folded while as many are received
}

// price returns the seconds that a call of so many ranks takes.
func (c Cost) price(l load, ranks int) float64 {
	messages := l.steps*c.Alpha + (l.messages-l.steps)*c.OtherAlpha
	bytes := l.path*c.Beta + (l.bytes-l.path)*c.OtherBeta
	crowded := c.Beta + float64(ranks-1)*c.OtherBeta
	return messages + bytes + l.folded*c.Gamma + l.hidden*max(c.shown()*c.Gamma, c.Gamma-crowded)
}

// shown is how much of the folding that goes on beside messages takes time nevertheless, as it
// was seen on two cores: half where the cores have to do with all bytes, nothing where each
// rank has a core for itself.
func (c Cost) shown() float64 {
	if c.OtherBeta == 0 {
		return 0
	}
	return min(0.5, c.OtherBeta/c.Beta)
}

// loadOf returns what a call does by an algorithm (Thakur, Rabenseifner, Gropp 2005,
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

func loadOfAllReduce(a Algorithm, n need) load {
	power := 1 << (bits.Len(uint(n.ranks)) - 1) // the most ranks that pair up
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
	if rest := float64(n.ranks - power); rest > 0 { // they hand their vectors in and get the result back
		l.steps += 2
		l.messages += 2 * rest
		l.path += 2 * n.bytes
		l.bytes += 2 * rest * n.bytes
		l.folded += n.bytes
	}
	return l
}

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

// hop is how many messages of other algorithms take as long as one that goes on round a ring: a
// rank hands it to a goroutine that sends. Between two and three ranks of a host 1.4 to 1.7 were seen.
const hop = 1.5

// ringLoad is that of going so many times round a ring, the first time with folds.
func ringLoad(n need, rounds float64) load {
	ranks, part := float64(n.ranks), share(n.ranks)*n.bytes
	hops := rounds * (ranks - 1)
	l := load{steps: hop * hops, messages: hop*hops + (ranks-1)*hops, path: rounds * part, bytes: ranks * rounds * part}
	return l.hiding(n.bytes/ranks, n.piece, ranks-1)
}

// hiding is l with so many folds of vectors that come in pieces: a piece is folded while the
// next one comes, and the last one after that.
func (l load) hiding(bytes, piece, folds float64) load {
	last := min(bytes, piece)
	l.folded += folds * last
	l.hidden += folds * (bytes - last)
	return l
}

// treeLoad is that of going up or down a binomial tree.
func treeLoad(n int, bytes float64) load {
	steps, messages := ceilLog(n), float64(n-1)
	return load{steps: steps, messages: messages, path: steps * bytes, bytes: messages * bytes}
}

// directLoad is that of a message between the root and each other rank.
func directLoad(n int, bytes float64) load {
	messages, part := float64(n-1), share(n)*bytes
	return load{steps: messages, messages: messages, path: part, bytes: part}
}

// blockLoad is that of a binomial tree in which a message has the parts of all ranks below,
// which are copied on the way.
func blockLoad(n int, bytes float64) load {
	l, part := treeLoad(n, 0), share(n)*bytes
	l.path, l.bytes, l.folded = part, max(part, bytes/2*ceilLog(n)), part
	return l
}

// folding is l if what comes is folded.
func (l load) folding() load {
	l.folded += l.path
	return l
}

// and is one after the other.
func (l load) and(m load) load {
	return load{l.steps + m.steps, l.messages + m.messages, l.path + m.path, l.bytes + m.bytes, l.folded + m.folded, l.hidden + m.hidden}
}

// share is what n ranks send of a vector of which each keeps one part.
func share(n int) float64 { return float64(n-1) / float64(n) }

func ceilLog(n int) float64 { return float64(bits.Len(uint(n - 1))) }

func isPowerOfTwo(n int) bool { return n&(n-1) == 0 }
