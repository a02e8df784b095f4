package collective

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/ring"
)

// Coding is a lossy compression of float32 vectors. Its methods are called concurrently by
// several calls. Their results depend on the arguments only, so that all ranks decode a
// code to the same bits.
type Coding interface {
	// Name identifies the coding. If the names at two ranks differ in the first 12 bytes, the ranks
	// make different calls, which is a mismatch.
	Name() string
	// Sparse reports whether a code has only few of the elements. The sum of such vectors has more
	// elements than each of the vectors. So every rank gets the codes of all ranks, instead of a
	// code of the sum.
	Sparse() bool
	// Size returns the number of bytes of the code of n elements, whatever their values.
	Size(n int) int
	// Encode writes the code of v to code, which has Size(len(v)) bytes, and replaces v by
	// the error of the code: v minus the vector that Add adds.
	Encode(code []byte, v []float32)
	// Add decodes code, which has Size(len(dst)) bytes, and adds the vector to dst. It returns an
	// error for bytes that are not a valid code.
	Add(dst []float32, code []byte) error
}

// AllReduceCoded sums the vectors v of all ranks in compressed form into dst at every rank. The sum
// has the same bits at all ranks. dst and v have the same length, at all ranks, and do not overlap.
// On return v has the compression error of this rank: except for the rounding of float32, dst plus
// the v of all ranks is the sum of the original vectors. If the caller adds v to its next vector,
// the error is sent later and not lost (error feedback: Seide and others 2014, Karimireddy and
// others 2019). After an error dst and v are undefined.
//
// Each chunk of the vector has one rank as its owner. The owner adds the codes of all other ranks
// to its own part in float32, and sends the code of the sum to all. So values are encoded only
// twice, whatever the number of ranks. The error of the second code stays at the owner. With a
// sparse coding each rank sends the code of its whole vector to all, and every rank adds the codes
// in the order of ranks. A single rank needs no code.
//
// Costs for n ranks and a code of C bytes: 2(n-1) steps and 2(n-1)/n C bytes sent by a
// rank; with a sparse coding n-1 steps and (n-1) C bytes. The codes of chunks go directly
// to the owners, the other codes around the ring (CallOptions.Order).
func AllReduceCoded(ctx context.Context, c *Comm, dst, v []float32, coding Coding) error {
	return c.run(ctx, planCoded(c, dst, v, coding))
}

// IAllReduceCoded starts AllReduceCoded.
func IAllReduceCoded(ctx context.Context, c *Comm, dst, v []float32, coding Coding) *Handle {
	return c.start(ctx, planCoded(c, dst, v, coding))
}

// planCoded returns the plan of AllReduceCoded.
func planCoded(c *Comm, dst, v []float32, coding Coding) plan {
	// The algorithm is always Ring, even if the ranks share memory: the final allgather
	// uses the ring.
	name := ""
	if coding != nil {
		name = coding.Name()
	}
	p := newPlan(c.withAlgorithm(Ring), vector{kind: transport.KindAllReduce, typ: dtype.TypeOf[float32](), size: kernel.Size[float32](), count: len(v),
		root: noRoot, op: "sum " + name})
	if coding == nil {
		p.fail("the coding is nil")
	}
	p.check("dst", len(dst), len(v))
	checkVectors(&p, c, dst, v, nil)
	p.needsBarrier = len(v) == 0
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

// coded is a call of AllReduceCoded in progress at this rank.
type coded struct {
	*operation
	coding Coding
	dst, v []float32
	chunks []int // bounds of the owners' chunks; nil with a sparse coding
}

// part returns the part of a vector that a rank encodes for all ranks: its chunk, or the
// whole vector with a sparse coding.
func (c *coded) part(v []float32, rank int) []float32 {
	if c.chunks == nil {
		return v
	}
	return v[c.chunks[rank]:c.chunks[rank+1]]
}

// scatter sends each owner the code of its chunk, and sums the codes for this rank's chunk in v.
// The owner's own part is not encoded. In round d each rank sends to the rank d places after it and
// receives from the rank d places before it. So no rank has two senders at a time, and all chunks
// arrive after size-1 rounds.
func (c *coded) scatter() error {
	mine := c.part(c.v, c.rank)
	maxSize := c.coding.Size(c.chunks[1]) // no chunk is longer than the first
	out, in := scratch[uint8](c.operation, maxSize), scratch[uint8](c.operation, c.coding.Size(len(mine)))
	for d := 1; d < c.size; d++ {
		to, from := (c.rank+d)%c.size, (c.rank-d+c.size)%c.size
		theirs := c.part(c.v, to)
		code := out[:c.coding.Size(len(theirs))]
		c.coding.Encode(code, theirs)
		if err := c.exchange(to, code, from, in); err != nil {
			return err
		}
		if err := c.coding.Add(mine, in); err != nil {
			return fmt.Errorf("code from rank %d: %w", from, err)
		}
	}
	return nil
}

// gather sends the code of this rank's part to all ranks and decodes the codes of all
// ranks. It also decodes its own code, so that all ranks get the same bits.
func (c *coded) gather() error {
	counts := make([]int, c.size)
	for rank := range counts {
		counts[rank] = c.coding.Size(len(c.part(c.v, rank)))
	}
	b := offsets(counts)
	codes := scratch[uint8](c.operation, b[c.size])
	c.coding.Encode(codes[b[c.rank]:b[c.rank+1]], c.part(c.v, c.rank))
	if err := allGatherInPlace(c.operation, codes, b); err != nil {
		return err
	}
	// Add accumulates, so the sums begin at zero.
	clear(c.dst)
	for rank := range c.size {
		if err := c.coding.Add(c.part(c.dst, rank), codes[b[rank]:b[rank+1]]); err != nil {
			return fmt.Errorf("code of rank %d: %w", rank, err)
		}
	}
	return nil
}
