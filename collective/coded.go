package collective

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// Coding is a form in which vectors of float32 travel that is shorter than they are, and
// loses something. Its methods are called at several calls at once. They depend on
// nothing but their arguments, so that all ranks decode a code to the same bits.
type Coding interface {
	// Name tells codings apart. Ranks whose names differ in the first 12 bytes make
	// different calls.
	Name() string
	// Sparse says that a code has only few of the elements. Sums of such vectors have
	// more than each, so the vectors of all ranks are gathered, and not their sums.
	Sparse() bool
	// Size returns the bytes of the code of n elements, whatever they are.
	Size(n int) int
	// Encode writes the code of v to code, which has Size(len(v)) bytes, and leaves in v
	// what the code lacks: v minus what Add makes of it.
	Encode(code []byte, v []float32)
	// Add adds to dst what code stands for, which has Size(len(dst)) bytes. Bytes that
	// stand for nothing are an error.
	Add(dst []float32, code []byte) error
}

// AllReduceCoded adds up the vectors v of all ranks, in a coding, into dst at every rank,
// where the sum has the same bits. dst and v have one length, the same at all ranks, and
// do not overlap. On return v has what the sum lacks of this rank's vector: but for the
// rounding of float32, dst plus the v of all ranks is the sum of what v was. A caller that
// adds v to its next vector loses nothing for good (error feedback: Seide and others 2014,
// Karimireddy and others 2019). After an error dst and v are undefined.
//
// A chunk of the vector belongs to one rank, which adds up the codes of the others to its
// own part in float32, and sends the code of the sum to all: two codes stand between a
// vector and the sum, however many ranks there are. What the second one lacks stays at the
// rank of the chunk. With a sparse coding the code of each rank's vector goes to all, who
// add them up in the order of ranks. One rank alone needs no code.
//
// Costs for n ranks and a code of C bytes: 2(n-1) steps and 2(n-1)/n C bytes sent by a
// rank; n-1 steps and (n-1) C bytes with a sparse coding. Codes to other chunks go straight
// to their ranks, the rest goes round the ring (CallOptions.Order).
func AllReduceCoded(ctx context.Context, c *Comm, dst, v []float32, coding Coding) error {
	return c.run(ctx, planCoded(c, dst, v, coding))
}

// IAllReduceCoded starts AllReduceCoded.
func IAllReduceCoded(ctx context.Context, c *Comm, dst, v []float32, coding Coding) *Handle {
	p := planCoded(c, dst, v, coding)
	return c.start(ctx, &p)
}

func planCoded(c *Comm, dst, v []float32, coding Coding) plan {
	// Whatever memory the ranks share, the ring is what comes last.
	name := ""
	if coding != nil {
		name = coding.Name()
	}
	p := c.using(Ring).planFor(vector{kind: transport.KindAllReduce, typ: dtype.TypeOf[float32](), size: kernel.Size[float32](), count: len(v),
		root: none, op: "sum " + name})
	if coding == nil {
		p.fail("the coding is nil")
	}
	p.check("dst", len(dst), len(v))
	checkVectors(&p, c, dst, v, nil)
	p.closing = len(v) == 0
	p.body = func(o *operation) error {
		x := coded{operation: o, coding: coding, dst: dst, v: v}
		if o.size == 1 {
			copy(dst, v)
			clear(v)
			return nil
		}
		if !coding.Sparse() {
			x.chunks = ring.Chunks(len(v), o.size)
			if err := x.scatter(); err != nil {
				return err
			}
		}
		return x.gather()
	}
	return p
}

// coded is one call of AllReduceCoded.
type coded struct {
	*operation
	coding Coding
	dst, v []float32
	chunks []int // where the chunks of the ranks begin, and the end; nil with a sparse coding
}

// part returns what of a vector a rank codes for all: its chunk, or the whole.
func (x *coded) part(v []float32, rank int) []float32 {
	if x.chunks == nil {
		return v
	}
	return v[x.chunks[rank]:x.chunks[rank+1]]
}

// scatter sends each rank the code of its chunk, and adds up in v those that come of this
// rank's. Nobody's own part of its own chunk is coded.
func (x *coded) scatter() error {
	mine := x.part(x.v, x.rank)
	longest := x.coding.Size(x.chunks[1]) // no chunk is longer than the first
	out, in := scratch[uint8](x.operation, longest), scratch[uint8](x.operation, x.coding.Size(len(mine)))
	for d := 1; d < x.size; d++ {
		to, from := (x.rank+d)%x.size, (x.rank-d+x.size)%x.size
		theirs := x.part(x.v, to)
		code := out[:x.coding.Size(len(theirs))]
		x.coding.Encode(code, theirs)
		if err := x.exchange(to, code, from, in); err != nil {
			return err
		}
		if err := x.coding.Add(mine, in); err != nil {
			return fmt.Errorf("code from rank %d: %w", from, err)
		}
	}
	return nil
}

// gather sends the code of this rank's part to all, and decodes those of all ranks: its
// own, too, as all have to come to the same bits.
func (x *coded) gather() error {
	counts := make([]int, x.size)
	for rank := range counts {
		counts[rank] = x.coding.Size(len(x.part(x.v, rank)))
	}
	b := bounds(counts)
	codes := scratch[uint8](x.operation, b[x.size])
	x.coding.Encode(codes[b[x.rank]:b[x.rank+1]], x.part(x.v, x.rank))
	if err := allGatherInPlace(x.operation, codes, b); err != nil {
		return err
	}
	clear(x.dst)
	for rank := range x.size {
		if err := x.coding.Add(x.part(x.dst, rank), codes[b[rank]:b[rank+1]]); err != nil {
			return fmt.Errorf("code of rank %d: %w", rank, err)
		}
	}
	return nil
}

// CodedBytes returns how many bytes a rank sends in a call of AllReduceCoded for n
// elements, and how many it would send in a ring's AllReduce: headers of messages apart,
// and of both what the ranks send on average. Without a communicator or a coding it is none.
func (c *Comm) CodedBytes(n int, coding Coding) (sent, uncoded int64) {
	if !c.made() || coding == nil {
		return 0, 0
	}
	ranks, others := int64(c.size), int64(c.size-1)
	uncoded = 2 * others * int64(n) * 4 / ranks
	if coding.Sparse() {
		return others * int64(coding.Size(n)), uncoded
	}
	all := int64(0)
	for rank := range c.size {
		first, end := Chunk(n, c.size, rank)
		all += int64(coding.Size(end - first))
	}
	return 2 * others * all / ranks, uncoded
}
