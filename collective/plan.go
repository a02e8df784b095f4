package collective

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// none is the root of a call that has none.
const none = -1

// vector says what a call does to its vector; describe makes the description and
// chooses the algorithm.
type vector struct {
	kind  transport.Kind
	size  int // bytes of an element
	count int // elements of the whole vector
	typ   dtype.Type
	root  int
	op    string // name of the reduction
	// ordered is set for a reduction that does not commute.
	ordered bool
	counts  []int // of the ranks, where they may differ
}

// planFor describes a call.
func (c *Comm) planFor(v vector) plan {
	var p plan
	p.describe(c, &v)
	return p
}

// describe fills in an empty plan. What does not fit becomes the plan's error, so that
// the call can revoke: the other ranks are waiting for it. It sets one field after the
// other, as does whoever hands on what the call is: a struct of small fields that is copied
// right after it was filled costs a short call more than all else here, since the
// processor has to wait for the stores.
func (p *plan) describe(c *Comm, v *vector) {
	p.peer = -1
	p.call.Kind, p.call.Type = v.kind, v.typ
	p.call.Root, p.call.Count, p.call.Segment = int32(v.root), uint64(v.count), uint32(c.pieces())
	copy(p.call.Op[:], v.op)
	p.call.Layout = layout(v.counts)
	p.call.Algorithm, p.err = c.choose(v.kind, float64(v.count)*float64(v.size), !v.ordered)
	if p.call.Algorithm == Ring {
		p.call.Layout = c.order.layout(p.call.Layout)
	}
	if rooted(v.kind) && (v.root < 0 || v.root >= c.size) {
		p.fail("root %d of %d ranks", v.root, c.size)
	}
}

// rooted reports whether the user names a root.
func rooted(k transport.Kind) bool {
	return k == transport.KindBroadcast || k == transport.KindReduce || k == transport.KindGather || k == transport.KindScatter
}

// fail notes that the arguments do not fit; the first reason stays.
func (p *plan) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, args...))
	}
}

// check fails the plan unless a slice has the length that the call wants.
func (p *plan) check(name string, got, want int) {
	if got != want {
		p.fail("%s has %d elements, want %d", name, got, want)
	}
}

// orNone returns op, or for nil an Op without a Fold, which checkReduction refuses. It hands on
// the function and not its Reduction, which would be one more copy of a struct; see describe.
func orNone[T Number](op Op[T]) Op[T] {
	if op == nil {
		return func() Reduction[T] { return Reduction[T]{} }
	}
	return op
}

// checkReduction fails the plan if there is nothing to combine elements with.
func checkReduction[T Number](p *plan, fold func(dst, a, b []T)) {
	if fold == nil {
		p.fail("the reduction is nil or has no Fold; pass collective.Sum[float32], for example")
	}
}

// checkFreed fails the plan if a vector came from Alloc and was freed.
func checkFreed[T Number](p *plan, c *Comm, v []T) {
	if c.SharesMemory() && c.shared.Arena.Freed(kernel.Bytes(v)) {
		p.fail("a vector from Alloc was freed before the call")
	}
}

// checkVectors fails the plan if one of its vectors was freed, or if they have memory in
// common, unless part is place: what there is of it in whole, where the call allows that.
func checkVectors[T Number](p *plan, c *Comm, whole, part, place []T) {
	checkFreed(p, c, whole)
	checkFreed(p, c, part)
	if p.err == nil && kernel.Overlap(whole, part) && !(len(part) == len(place) && &part[0] == &place[0]) {
		p.fail("dst and src overlap, and not as the call allows")
	}
}

// checkPart is checkVectors where the part of a rank may stand at its place in the whole.
func checkPart[T Number](p *plan, c *Comm, whole, part []T, counts []int) {
	if p.err == nil {
		b := bounds(counts)
		checkVectors(p, c, whole, part, whole[b[c.rank]:b[c.rank+1]])
	}
}

// layout hashes counts for comparison between ranks; 0 stands for equal counts.
func layout(counts []int) uint32 {
	if counts == nil {
		return 0
	}
	h := fnv.New32a()
	for _, n := range counts {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	return max(h.Sum32(), 1)
}

// total checks counts, one for each rank, and returns their sum.
func (c *Comm) total(counts []int) (int, error) {
	if len(counts) != c.size {
		return 0, fmt.Errorf("%w: %d counts for %d ranks", ErrArgument, len(counts), c.size)
	}
	sum := 0
	for rank, n := range counts {
		if n < 0 {
			return 0, fmt.Errorf("%w: count %d of rank %d", ErrArgument, n, rank)
		}
		if n > math.MaxInt-sum {
			return 0, fmt.Errorf("%w: the counts add up to more than a vector can have", ErrArgument)
		}
		sum += n
	}
	return sum, nil
}

// evenly returns n equal counts.
func evenly(n, count int) []int {
	counts := make([]int, n)
	for i := range counts {
		counts[i] = count
	}
	return counts
}

// bounds returns where the parts of the given lengths begin, and the end.
func bounds(counts []int) []int {
	b := make([]int, len(counts)+1)
	for i, n := range counts {
		b[i+1] = b[i] + n
	}
	return b
}

// Chunk returns the part [first, end) of a vector of length elements that rank of
// size ranks gets from ReduceScatter: lengths differ by at most one, longer first.
func Chunk(length, size, rank int) (first, end int) {
	bounds := ring.Chunks(length, size)
	return bounds[rank], bounds[rank+1]
}

// ring returns the two neighbours of this rank as package ring wants them.
func (o *operation) ring() ring.Ring {
	left, right := o.order.neighbours(o.rank, o.size)
	return ring.Ring{Link: &ringLink{o: o, left: left, right: right}, Rank: o.rank, Size: o.size, Order: o.order.ranks,
		Segment: o.pieces(), Memory: o.words}
}

// ringLink sends to the right neighbour and receives from the left.
type ringLink struct {
	o           *operation
	left, right int  // ranks of the communicator
	watched     bool // the sending side's
}

// Send sends to the right neighbour. The context of the ring ends with a cause of its
// own when the other side fails or panics: that revokes, or a Send that nobody wants
// would wait for ever. It is watched once, which spares the messages the cost.
func (l *ringLink) Send(ctx context.Context, buf []byte) error {
	if !l.watched {
		l.watched = true
		context.AfterFunc(ctx, func() {
			if cause := context.Cause(ctx); cause != context.Canceled { // which is how success ends it
				l.o.revoke(cause)
			}
		})
	}
	return l.o.sendPiece(l.right, buf)
}

// Recv receives from the left neighbour. Whatever else ends the ring has revoked.
func (l *ringLink) Recv(_ context.Context, buf []byte) error {
	return l.o.recvPiece(l.left, buf)
}

// finish applies the reduction's last step for a result of n ranks.
func finish[T Number](red Reduction[T], v []T, n int) {
	if red.Finish != nil {
		red.Finish(v, n)
	}
}
