package collective

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// noRoot is the root of a call without a root.
const noRoot = -1

// plan is a call that has not begun: its description, and the work of this rank.
type plan struct {
	call    transport.Call
	tag     int                    // of a point-to-point call; may be AnyTag
	peer    int                    // other rank of a point-to-point call, as a rank of the communicator; may be AnySource or NoRank; else -1
	send    bool                   // the call is a Send
	probe   bool                   // the call is a Probe
	message *Message               // the body of an IRecv stores the description of its message here; else nil
	err     error                  // error of the first bad argument; it fails the call and revokes
	body    func(*operation) error // sends, receives and reduces
	// needsBarrier is set for calls that can end at one rank before another rank has begun them.
	// Such calls end with a barrier of empty messages (see disseminate).
	needsBarrier bool
}

// vector is the input of plan.describe: the kind of a call and its vector.
type vector struct {
	kind  transport.Kind
	size  int // bytes of an element
	count int // number of elements of the whole vector
	typ   dtype.Type
	root  int
	op    string // name of the reduction
	width int    // of the reduction; 0 stands for 1
	// ordered is set for a reduction that does not commute.
	ordered bool
	counts  []int // elements of each rank, if they may differ; else nil
}

// newPlan returns the plan of a call without its body.
func newPlan(c *Comm, v vector) plan {
	var p plan
	p.describe(c, &v)
	return p
}

// describe fills in an empty plan: it describes the call and chooses its algorithm. A bad argument
// becomes the error of the plan, without an early return: the call must begin and revoke, because
// the other ranks wait for it.
//
// describe sets the fields one by one, like all code that passes on a Call. If a struct were copied
// right after its small fields were written, store-to-load forwarding would fail, and the processor
// would stall for longer than the other statements of this function take.
func (p *plan) describe(c *Comm, v *vector) {
	p.peer = -1
	p.call.Kind, p.call.Type = v.kind, v.typ
	p.call.Root, p.call.Count, p.call.Segment = int32(v.root), uint64(v.count), uint32(c.segment)
	copy(p.call.Op[:], v.op)
	p.call.Layout = layout(v.counts)
	p.call.Algorithm, p.err = c.choose(v.kind, float64(v.count)*float64(v.size), !v.ordered)
	if p.call.Algorithm == Ring {
		p.call.Layout = c.order.layout(p.call.Layout)
	}
	if v.width > 1 {
		p.describeWidth(v)
	}
	if rooted(v.kind) && (v.root < 0 || v.root >= c.size) {
		p.fail("root %d, want 0 or more and less than the number of ranks, %d", v.root, c.size)
	}
}

// describeWidth describes a reduction of groups of elements. Messages have whole groups, because some
// algorithms reduce each message when it arrives.
func (p *plan) describeWidth(v *vector) {
	if v.width > ring.MaxWidth {
		p.fail("the reduction has the width %d, want at most %d", v.width, ring.MaxWidth)
		return
	}
	p.call.Width = uint8(v.width)
	group := v.width * v.size
	p.call.Segment = uint32(max(1, int(p.call.Segment)/group) * group)
	for _, n := range append([]int{v.count}, v.counts...) {
		if n%v.width != 0 {
			p.fail("%d elements, want a multiple of %d, the width of %s", n, v.width, v.op)
		}
	}
}

// rooted reports whether calls of kind k have a root as an argument.
func rooted(k transport.Kind) bool {
	return k == transport.KindBroadcast || k == transport.KindReduce || k == transport.KindGather || k == transport.KindScatter
}

// fail records a bad argument. It keeps the first reason.
func (p *plan) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, args...))
	}
}

// check fails the plan unless a slice has the length that the call needs.
func (p *plan) check(name string, got, want int) {
	if got != want {
		p.fail("%s has %d elements, want %d", name, got, want)
	}
}

// checkCounts fails the plan unless counts, one per rank, cut a vector of the given length.
func (p *plan) checkCounts(c *Comm, name string, length int, counts []int) {
	sum, err := c.total(counts)
	if p.err != nil {
		return
	}
	p.err = err
	if err == nil {
		p.check(name, length, sum)
	}
}

// orEmptyOp returns op. For a nil op it returns an Op whose Reduction has no Fold, which
// checkReduction rejects. It returns the function and not the Reduction, because a copy of the
// struct would be slow; see describe.
func orEmptyOp[T Number](op Op[T]) Op[T] {
	if op == nil {
		return func() Reduction[T] { return Reduction[T]{} }
	}
	return op
}

// checkReduction fails the plan if the reduction has no function.
func checkReduction[T Number](p *plan, fold func(dst, a, b []T)) {
	if fold == nil {
		p.fail("the reduction is nil or has no Fold; pass collective.Sum[float32], for example")
	}
}

// checkFreed fails the plan if a vector from Alloc was freed before the call.
func checkFreed[T Number](p *plan, c *Comm, v []T) {
	if c.SharesMemory() && c.shared.Arena.Freed(kernel.Bytes(v)) {
		p.fail("a vector from Alloc was freed before the call")
	}
}

// checkVectors fails the plan if one of its two vectors was freed, or if they overlap. There
// is one exception: the slice part may be identical to the slice allowed, a subslice of
// whole. If allowed is nil no overlap is permitted.
func checkVectors[T Number](p *plan, c *Comm, whole, part, allowed []T) {
	checkFreed(p, c, whole)
	checkFreed(p, c, part)
	if p.err == nil && kernel.Overlap(whole, part) && !(len(part) == len(allowed) && &part[0] == &allowed[0]) {
		p.fail("dst and src overlap in a way that the call does not allow: pass separate slices")
	}
}

// checkPart is checkVectors for a call in which part may be this rank's section of whole.
func checkPart[T Number](p *plan, c *Comm, whole, part []T, counts []int) {
	if p.err == nil {
		b := offsets(counts)
		checkVectors(p, c, whole, part, whole[b[c.rank]:b[c.rank+1]])
	}
}

// layout returns a hash of counts (FNV-1a), by which ranks compare their counts. It is 0 if counts
// is nil, which means that all counts are equal.
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

// equalCounts returns n equal counts.
func equalCounts(n, count int) []int {
	counts := make([]int, n)
	for i := range counts {
		counts[i] = count
	}
	return counts
}

// offsets returns the offsets of consecutive parts with the given lengths, and the end.
func offsets(counts []int) []int {
	b := make([]int, len(counts)+1)
	for i, n := range counts {
		b[i+1] = b[i] + n
	}
	return b
}

// Chunk returns the part [first, end) of a vector of length elements that rank gets from
// ReduceScatter among size ranks. Chunk lengths differ by at most one, and longer chunks
// come first.
func Chunk(length, size, rank int) (first, end int) {
	bounds := ring.Chunks(length, size)
	return bounds[rank], bounds[rank+1]
}

// ringLink is the pair of links of a rank in the ring: it sends to the right neighbour and
// receives from the left one.
type ringLink struct {
	o           *operation
	left, right int  // ranks of the communicator
	watched     bool // the context of the ring is watched; only Send uses it
}

// Send sends to the right neighbour. Package ring ends ctx with a cause when its receiving half
// fails or panics. The end must revoke, as otherwise a Send without a receiver would wait for ever.
// The first Send watches the context for the whole call, so that later messages need no watch.
func (r *ringLink) Send(ctx context.Context, buf []byte) error {
	if !r.watched {
		r.watched = true
		context.AfterFunc(ctx, func() {
			if cause := context.Cause(ctx); cause != context.Canceled { // after success the cause is Canceled
				r.o.revoke(cause)
			}
		})
	}
	return r.o.sendSegment(r.right, buf)
}

// Recv receives from the left neighbour. It needs no context: every failure that ends the
// ring has revoked.
func (r *ringLink) Recv(_ context.Context, buf []byte) error {
	return r.o.recvSegment(r.left, buf)
}

// finish applies the final function of a reduction, if it has one, to the result of n
// ranks.
func finish[T Number](red Reduction[T], v []T, n int) {
	if red.Finish != nil {
		red.Finish(v, n)
	}
}
