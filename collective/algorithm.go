package collective

import (
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// Algorithm is the way in which a call is carried out. Its String is the name in flags and
// logs.
type Algorithm = transport.Algorithm

// The algorithms. The comments of the calls state their costs.
const (
	// Auto chooses by size, number of ranks and Options.Cost; the choice is the same at
	// every rank.
	Auto = transport.Auto
	// Ring sends to the right neighbour and receives from the left one, pipelined by
	// segments (Patarasuk, Yuan 2009).
	Ring = transport.Ring
	// RecursiveDoubling exchanges whole vectors with the ranks at distance 1, 2, 4, ...
	RecursiveDoubling = transport.RecursiveDoubling
	// Rabenseifner halves the vector at each exchange (reduce-scatter by recursive
	// halving), then gathers the parts again (Rabenseifner 2004).
	Rabenseifner = transport.Rabenseifner
	// Tree sends up or down a binomial tree.
	Tree = transport.Tree
	// Direct sends the data of each pair directly from its source to its destination.
	Direct = transport.Direct
	// SharedMemory works in memory that all ranks share. Auto always chooses it if there is
	// such memory.
	SharedMemory = transport.SharedMemory
	// TwoLevel is hierarchical: it reduces in the memory of each host, then between one
	// rank of each host. If Options.Sites are known, the latter step is again split, into
	// one within each site and one between sites. Auto chooses it if hosts or sites have
	// several ranks.
	TwoLevel = transport.TwoLevel
)

// algorithms lists all algorithms, Auto first.
func algorithms() []Algorithm {
	return []Algorithm{Auto, Ring, RecursiveDoubling, Rabenseifner, Tree, Direct, SharedMemory, TwoLevel}
}

// ParseAlgorithm is the inverse of Algorithm.String. It returns an error for an unknown
// name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for _, a := range algorithms() {
		if a.String() == name {
			return a, nil
		}
	}
	return Auto, fmt.Errorf("collective: unknown algorithm %q (one of %v)", name, algorithms())
}

// supported lists the algorithms of a kind of call that work by messages, the one for small
// vectors first.
func supported(k transport.Kind) []Algorithm {
	switch k {
	case transport.KindAllReduce:
		return []Algorithm{RecursiveDoubling, Rabenseifner, Ring, Tree}
	case transport.KindReduceScatter, transport.KindBroadcast, transport.KindReduce:
		return []Algorithm{Tree, Ring}
	case transport.KindAllGather:
		return []Algorithm{RecursiveDoubling, Ring, Tree}
	case transport.KindGather, transport.KindScatter:
		return []Algorithm{Tree, Direct}
	case transport.KindAllToAll, transport.KindPoint:
		return []Algorithm{Direct}
	}
	return []Algorithm{RecursiveDoubling}
}

// Choice returns the algorithm of a call of a kind whose whole vector has the given number
// of bytes: the algorithm of CallOptions, or the choice of Auto. commutative is true for
// calls without a reduction. An algorithm that does not fit the call is an ErrArgument.
func (c *Comm) Choice(kind transport.Kind, bytes int, commutative bool) (Algorithm, error) {
	if !c.made() {
		return Auto, fmt.Errorf("collective: choice: %w", errNil)
	}
	return c.choose(kind, float64(bytes), commutative)
}

// choose is Choice for a communicator that is known to be valid.
func (c *Comm) choose(kind transport.Kind, bytes float64, commutative bool) (Algorithm, error) {
	if c.order.wrong != nil {
		return Auto, c.order.wrong
	}
	n := need{kind, c.size, bytes, float64(c.opts.Segment), commutative, c.lane != nil, c.level != nil}
	return choose(c.algorithm, &n, c.opts.Cost)
}

// need holds the properties of a call on which the choice of its algorithm depends. They
// are equal at all ranks, so all ranks choose the same.
type need struct {
	kind        transport.Kind
	ranks       int
	bytes       float64 // of the whole vector
	piece       float64 // maximum bytes of a message
	commutative bool
	shared      bool // all ranks share memory
	levels      bool // the ranks form several hosts or sites
}

// frugalFrom is the length in bytes from which Auto takes a ring for every AllReduce that a
// ring can do. The other algorithms need up to a second vector of memory, and for long
// vectors they save a few messages at most.
const frugalFrom = 32 << 20

// choose returns the cheapest algorithm that can carry out the call. Unless the user has
// chosen, it is a pure function of need and cost. A user's choice that does not fit the
// call is an error, for example a ring for a reduction that does not commute.
func choose(want Algorithm, n *need, cost Cost) (Algorithm, error) {
	if n.shared && inMemory(n.kind) && (want == Auto || want == SharedMemory) {
		return SharedMemory, nil
	}
	if n.levels && n.kind == transport.KindAllReduce && n.commutative && (want == Auto || want == TwoLevel) {
		return TwoLevel, nil
	}
	best, price := Auto, 0.0
	for _, a := range supported(n.kind) {
		if !n.commutative && a == Ring {
			continue
		}
		if a == want {
			return a, nil
		}
		if a != Ring && n.kind == transport.KindAllReduce && n.commutative && n.bytes >= frugalFrom {
			continue
		}
		if p := cost.price(loadOf(a, *n), n.ranks); best == Auto || p < price {
			best, price = a, p
		}
	}
	if want == Auto {
		return best, nil
	}
	return Auto, fmt.Errorf("%w: %v cannot be done by %v here (one of %v; a ring needs a commutative reduction)",
		ErrArgument, n.kind, want, supported(n.kind))
}
