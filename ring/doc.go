// Package ring has the ring algorithms: all-reduce, reduce-scatter, all-gather and a pipelined
// broadcast, for ranks that each exchange messages with two neighbours only.
//
// # Mechanism
//
// The vector is cut into one chunk per rank. Chunks travel to the right. At hop h a rank receives
// chunk rank-h-1 (modulo the number of ranks). It sends the chunk that it received at hop h-1; at
// hop 0 it sends its own chunk. During the first n-1 hops a rank adds its own elements to each
// received chunk (reduce-scatter); then each chunk is complete at one rank. During another n-1 hops
// the complete chunks overwrite the others (all-gather). Chunks travel in segments: a rank passes
// on a segment while it receives the next one.
//
// Costs, for n ranks and a vector of S bytes, where a is the latency of a message, b the time to
// transfer a byte and g the time to reduce a byte:
//
//	AllReduce       2(n-1)a + 2(n-1)/n S b + (n-1)/n S g
//	ReduceScatter    (n-1)a +  (n-1)/n S b + (n-1)/n S g
//	AllGather        (n-1)a +  (n-1)/n S b
//	Broadcast        (n-2+m)(a + S/m b)                      m segments
//
// No all-reduce moves fewer bytes per rank: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", Journal of Parallel and Distributed Computing 69
// (2009). For short vectors the latency of 2(n-1) successive messages dominates; package collective
// uses other algorithms for them.
//
// # Use
//
// Every rank calls the same function with equal lengths, Segment and operation, over a Link to its
// neighbours:
//
//	r := ring.Ring{Link: link, Rank: 2, Size: 4, Segment: 256 << 10}
//	err := ring.AllReduce(ctx, r, dst, src, ring.Sum[float32]())
//
// The ring may have the ranks in any order, see Ring.Order; the function Order finds a good order.
// With another order, read "the place of the rank in the ring" where this text says "rank".
//
// # Guarantees
//
// Each chunk is reduced along one path and then copied, so all ranks end with the same bits. The
// order of the reduction depends on the chunk: the elements of rank c come first in chunk c of an
// AllReduce, and last in chunk c of a ReduceScatter.
//
// After an error the contents of dst are undefined. The link may still hold messages, so it cannot
// be used for another call.
package ring
