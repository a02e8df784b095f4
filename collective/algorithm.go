package collective

import (
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// Algorithm selects how a call is carried out. Its String is the name used in flags and logs.
type Algorithm = transport.Algorithm

// The algorithms.
const (
	// Auto chooses by size, ranks and Options.Cost, the same at every rank.
	Auto = transport.Auto
	// Ring sends to the right and receives from the left, pipelined by segments.
	Ring = transport.Ring
	// RecursiveDoubling exchanges whole vectors with ranks at distance 1, 2, 4, ...
	RecursiveDoubling = transport.RecursiveDoubling
	// Rabenseifner halves the vector at each exchange, then gathers it again.
	Rabenseifner = transport.Rabenseifner
	// Tree goes up or down a binomial tree.
	Tree = transport.Tree
	// Direct sends each pair's data from its source to its destination.
	Direct = transport.Direct
	// SharedMemory combines in memory that all ranks share. Auto takes it wherever they do.
	SharedMemory = transport.SharedMemory
	// TwoLevel combines in the memory of each host, then between one rank of each; and where
	// Options.Sites are known within each site, then between one rank of each. Auto takes it
	// where hosts or sites have several ranks.
	TwoLevel = transport.TwoLevel
)

// algorithms lists them all, Auto first.
func algorithms() []Algorithm {
	return []Algorithm{Auto, Ring, RecursiveDoubling, Rabenseifner, Tree, Direct, SharedMemory, TwoLevel}
}

// ParseAlgorithm is the inverse of Algorithm.String.
func ParseAlgorithm(name string) (Algorithm, error) {
	for _, a := range algorithms() {
		if a.String() == name {
			return a, nil
		}
	}
	return Auto, fmt.Errorf("collective: unknown algorithm %q (one of %v)", name, algorithms())
}

// supported lists the algorithms of a kind of call, the one for small vectors first.
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

// Choice returns the algorithm of a call of kind whose whole vector has the given
// bytes, commutative if it has no reduction: that of CallOptions, or what Auto
// chooses. An algorithm that does not fit the call is an ErrArgument.
func (c *Comm) Choice(kind transport.Kind, bytes int, commutative bool) (Algorithm, error) {
	if !c.made() {
		return Auto, fmt.Errorf("collective: choice: %w", errNil)
	}
	return c.choose(kind, float64(bytes), commutative)
}

// choose is Choice of a communicator that was made.
func (c *Comm) choose(kind transport.Kind, bytes float64, commutative bool) (Algorithm, error) {
	if c.order.wrong != nil {
		return Auto, c.order.wrong
	}
	n := need{kind, c.size, bytes, float64(c.opts.Segment), commutative, c.lane != nil, c.level != nil}
	return choose(c.algorithm, &n, c.opts.Cost)
}

// need is what the choice of an algorithm depends on.
type need struct {
	kind        transport.Kind
	ranks       int
	bytes       float64 // of the whole vector
	piece       float64 // bytes of a message at most
	commutative bool
	shared      bool // the ranks share memory
	levels      bool // they fall into groups, of hosts or sites
}

// frugalFrom is the length in bytes from which Auto takes a ring for an AllReduce that may
// be one: the others need up to a second vector, and for long ones they are at most a few
// messages ahead.
const frugalFrom = 32 << 20

// choose returns the cheapest algorithm that can do the call. Without a choice by
// the user it is a pure function of need and cost; a choice that does not fit the
// call (a ring for a reduction that does not commute) is an error.
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
