// Package ring holds the ring algorithms: all-reduce, reduce-scatter, all-gather
// and a pipelined broadcast, for ranks that each talk to two neighbours only.
//
// The vector is cut into one chunk per rank, and chunks travel rightwards. At hop
// h a rank receives chunk rank-h-1 (modulo the number of ranks) and sends what it
// received at hop h-1, its own chunk first. Through the first n-1 hops it adds its
// own elements to what it receives; then one rank holds each sum, and another n-1
// hops overwrite and so spread the sums. Chunks travel in segments: a rank sends
// a segment on while it receives the next.
//
// Costs, with a the latency of a message, b the time to transfer a byte, g the
// time to combine a byte, S the bytes of the vector and n ranks:
//
//	AllReduce       2(n-1)a + 2(n-1)/n S b + (n-1)/n S g
//	ReduceScatter    (n-1)a +  (n-1)/n S b + (n-1)/n S g
//	AllGather        (n-1)a +  (n-1)/n S b
//	Broadcast        (n-2+m)(a + S/m b)                      m segments
//
// No all-reduce moves fewer bytes per rank: P. Patarasuk and X. Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", Journal of Parallel
// and Distributed Computing 69 (2009). For short vectors the 2(n-1) messages one
// after the other are too many; package collective takes other algorithms then.
//
// Use: every rank calls the same function with equal lengths, Segment and
// operation over a Link to its neighbours.
//
//	r := ring.Ring{Link: link, Rank: 2, Size: 4, Segment: 256 << 10}
//	err := ring.AllReduce(ctx, r, dst, src, ring.Sum[float32]())
//
// The ring has the ranks in any order, see Ring.Order and, for a good one, Order. Where
// ranks are spoken of above, their places in it are meant.
//
// Each chunk is summed along one path and then copied, so all ranks end with the
// same bits. The order of the sum depends on the chunk: the elements of rank c come
// first in chunk c. After an error the contents of dst are undefined, and messages
// may be left on the link: it cannot be used for another call.
package ring
