package collective

import (
	"fmt"

	"github.com/elrun/elrun/collective/transport"
)

// Algorithm is the way in which a call is carried out. Its method String returns the name in flags
// and logs.
type Algorithm = transport.Algorithm

// The algorithms. The comments of the calls state their costs.
const (
	// Auto takes SharedMemory and TwoLevel under the conditions in their comments, and otherwise
	// the algorithm that Options.Cost predicts to be the fastest for the length of the vector and
	// the number of ranks. The choice is the same at every rank.
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
	// SharedMemory works in memory that all ranks share. If there is such memory, Auto chooses it
	// for AllReduce, ReduceScatter, AllGather, Broadcast, Reduce and Barrier.
	SharedMemory = transport.SharedMemory
	// TwoLevel is hierarchical: first the ranks of each host reduce in shared memory, then one rank
	// of each host reduces the sums with the other hosts. If Options.Sites are known, the step
	// between hosts is split again, into a step within each site and a step between sites. Auto
	// chooses TwoLevel for a commutative AllReduce if hosts or sites have several ranks.
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
	return Auto, fmt.Errorf("collective: unknown algorithm %q: want one of %v", name, algorithms())
}

// supported lists the algorithms that carry out a kind of call by messages, with the algorithm for
// small vectors first.
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
	case transport.KindAllToAll, transport.KindAllToAllV, transport.KindPoint:
		return []Algorithm{Direct}
	}
	return []Algorithm{RecursiveDoubling}
}

// request holds the properties of a call on which the choice of its algorithm depends. These
// properties are equal at all ranks, so all ranks choose the same algorithm.
type request struct {
	kind         transport.Kind
	ranks        int
	bytes        float64 // of the whole vector
	segment      float64 // maximum bytes of a message
	commutative  bool
	shared       bool // all ranks share memory
	hierarchical bool // the ranks are on several hosts or sites
}

// lowMemoryFrom is the length in bytes from which Auto takes a ring for every commutative AllReduce
// by messages between all ranks. The other algorithms need up to a second vector of memory, and for
// long vectors they save a few messages at most.
const lowMemoryFrom = 32 << 20

// choose returns the cheapest algorithm that can carry out the call. It is a pure function of its
// arguments, so all ranks choose the same algorithm. If want is not Auto and does not fit the call,
// for example a ring for a reduction that does not commute, it returns an error.
func choose(want Algorithm, r *request, cost Cost) (Algorithm, error) {
	// The cost model below is for the algorithms that work by messages between all ranks.
	if r.shared && usesMemory(r.kind) && (want == Auto || want == SharedMemory) {
		return SharedMemory, nil
	}
	if r.hierarchical && r.kind == transport.KindAllReduce && r.commutative && (want == Auto || want == TwoLevel) {
		return TwoLevel, nil
	}
	best, bestTime := Auto, 0.0
	for _, a := range supported(r.kind) {
		if !r.commutative && a == Ring {
			continue
		}
		if a == want {
			return a, nil
		}
		if a != Ring && r.kind == transport.KindAllReduce && r.commutative && r.bytes >= lowMemoryFrom {
			continue
		}
		if p := cost.seconds(workloadOf(a, *r)); best == Auto || p < bestTime {
			best, bestTime = a, p
		}
	}
	if want == Auto {
		return best, nil
	}
	return Auto, fmt.Errorf("%w: %v cannot use %v here: want auto or one of %v (a ring needs a commutative reduction)",
		ErrArgument, r.kind, want, supported(r.kind))
}

// usesMemory reports whether calls of a kind are carried out in shared memory if all ranks share
// some. Other kinds always use messages: they send different data to each rank, or they are rare.
func usesMemory(k transport.Kind) bool {
	switch k {
	case transport.KindAllReduce, transport.KindReduceScatter, transport.KindAllGather, transport.KindBroadcast, transport.KindReduce, transport.KindBarrier:
		return true
	}
	return false
}
