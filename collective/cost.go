package collective

import (
	"math/bits"

	"github.com/elrun/elrun/collective/transport"
)

// Cost holds the parameters of Hockney's model of communication (Hockney 1994): a message of S
// bytes takes Alpha + S*Beta seconds. Reducing S bytes takes S*Gamma seconds. The ranks of one host
// share its cores and links: Alpha and Beta are the costs while all ranks send.
type Cost struct {
	Alpha float64 // seconds per message
	Beta  float64 // seconds per byte sent
	Gamma float64 // seconds per byte reduced
}

// DefaultCost returns the costs of libp2p streams within one host.
func DefaultCost() Cost { return Cost{Alpha: 40e-6, Beta: 1.5e-9, Gamma: 0.25e-9} }

// workload is the work on the critical path of a call, in the units of Cost.
type workload struct {
	steps      float64 // messages
	path       float64 // bytes sent
	reduced    float64 // bytes reduced
	overlapped float64 // bytes reduced while as many bytes are received
}

// seconds returns the seconds that a call with a workload takes.
func (c Cost) seconds(l workload) float64 {
	return l.steps*c.Alpha + l.path*c.Beta + l.reduced*c.Gamma + l.overlapped*max(0, c.Gamma-c.Beta)
}

// femtoseconds returns the costs in femtoseconds, as integers that ranks can compare.
func (c Cost) femtoseconds() []int64 {
	var out []int64
	for _, v := range []float64{c.Alpha, c.Beta, c.Gamma} {
		out = append(out, int64(v*1e15))
	}
	return out
}

// workloadOf returns the workload of a call for an algorithm (Thakur, Rabenseifner, Gropp 2005,
// section 4).
func workloadOf(a Algorithm, r request) workload {
	switch r.kind {
	case transport.KindAllReduce:
		return workloadOfAllReduce(a, r)
	case transport.KindReduce:
		if a == Ring { // a reduce-scatter, then all to root
			return ringWorkload(r, 1).then(directWorkload(r.ranks, r.bytes))
		}
		return treeWorkload(r.ranks, r.bytes).addReduction()
	case transport.KindReduceScatter:
		if a == Ring {
			return ringWorkload(r, 1)
		}
		// The result goes down the tree in parts, and a barrier of empty messages follows. For the
		// other kinds no barrier is counted, as either all algorithms end with a barrier or none
		// does.
		down := blockWorkload(r.ranks, r.bytes).then(workload{steps: ceilLog(r.ranks)})
		return treeWorkload(r.ranks, r.bytes).addReduction().then(down)
	case transport.KindBroadcast:
		if a == Ring { // a pipeline: steps is the latency until the last rank receives, and each rank sends the vector once
			return workload{steps: 2 * float64(r.ranks), path: r.bytes}
		}
		return treeWorkload(r.ranks, r.bytes)
	case transport.KindAllGather:
		return workloadOfAllGather(a, r)
	case transport.KindGather, transport.KindScatter:
		if a == Direct {
			return directWorkload(r.ranks, r.bytes)
		}
		return blockWorkload(r.ranks, r.bytes)
	}
	return workload{}
}

// workloadOfAllReduce is workloadOf for KindAllReduce.
func workloadOfAllReduce(a Algorithm, r request) workload {
	power := 1 << (bits.Len(uint(r.ranks)) - 1) // the largest power of two that is at most the number of ranks
	lg := float64(bits.Len(uint(power)) - 1)
	var l workload
	switch a {
	case RecursiveDoubling:
		l = workload{steps: lg, path: lg * r.bytes}.addOverlapped(r.bytes, r.segment, lg)
	case Rabenseifner:
		part := sentFraction(power) * r.bytes
		l = workload{steps: 2 * lg, path: 2 * part, reduced: part}
	case Ring:
		return ringWorkload(r, 2)
	default:
		return treeWorkload(r.ranks, r.bytes).addReduction().then(treeWorkload(r.ranks, r.bytes))
	}
	if r.ranks > power { // the other ranks send their vectors to a neighbour and get the result back
		l = l.then(workload{steps: 2, path: 2 * r.bytes, reduced: r.bytes})
	}
	return l
}

// workloadOfAllGather is workloadOf for KindAllGather.
func workloadOfAllGather(a Algorithm, r request) workload {
	l := ringWorkload(r, 1)
	l.reduced, l.overlapped = 0, 0
	switch {
	case a == Tree:
		return blockWorkload(r.ranks, r.bytes).then(treeWorkload(r.ranks, r.bytes))
	case a == RecursiveDoubling && isPowerOfTwo(r.ranks):
		l.steps = ceilLog(r.ranks)
	case r.bytes/float64(r.ranks) > r.segment: // pipelined by segments, so a little faster than recursive doubling
		l.path *= 0.9
	}
	return l
}

// ringWorkload returns the workload of a number of rounds around a ring; a round has n-1 steps for
// n ranks. The first round reduces.
func ringWorkload(r request, rounds float64) workload {
	ranks := float64(r.ranks)
	l := workload{steps: rounds * (ranks - 1), path: rounds * sentFraction(r.ranks) * r.bytes}
	return l.addOverlapped(r.bytes/ranks, r.segment, ranks-1)
}

// addOverlapped adds reductions of vectors of the given number of bytes each, which arrive in
// segments. Each segment is reduced while the next one arrives; only the last segment of a vector
// is not overlapped.
func (w workload) addOverlapped(bytes, segment, reductions float64) workload {
	last := min(bytes, segment)
	w.reduced += reductions * last
	w.overlapped += reductions * (bytes - last)
	return w
}

// treeWorkload returns the workload of a vector that goes up or down a binomial tree.
func treeWorkload(n int, bytes float64) workload {
	return workload{steps: ceilLog(n), path: ceilLog(n) * bytes}
}

// directWorkload returns the workload of a message between the root and each other rank.
func directWorkload(n int, bytes float64) workload {
	return workload{steps: float64(n - 1), path: sentFraction(n) * bytes}
}

// blockWorkload returns the workload of a binomial tree in which a message has the parts of all
// ranks below its sender or receiver. The inner ranks of the tree copy the parts, which counts as a
// reduction of the same bytes.
func blockWorkload(n int, bytes float64) workload {
	part := sentFraction(n) * bytes
	return workload{steps: ceilLog(n), path: part, reduced: part}
}

// addReduction adds a reduction of all received bytes.
func (w workload) addReduction() workload {
	w.reduced += w.path
	return w
}

// then returns the workload of w followed by m.
func (w workload) then(m workload) workload {
	return workload{w.steps + m.steps, w.path + m.path, w.reduced + m.reduced, w.overlapped + m.overlapped}
}

// sentFraction returns the fraction of a vector that each of n ranks sends if it keeps one part.
func sentFraction(n int) float64 { return float64(n-1) / float64(n) }

// ceilLog returns the binary logarithm of n, rounded up.
func ceilLog(n int) float64 { return float64(bits.Len(uint(n - 1))) }

// isPowerOfTwo reports whether n, at least 1, is a power of two.
func isPowerOfTwo(n int) bool { return n&(n-1) == 0 }
