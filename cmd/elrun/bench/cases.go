package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// Collectives returns the names of the calls that can be measured.
func Collectives() []string {
	return []string{"allreduce", "reducescatter", "allgather", "broadcast", "reduce", "gather", "scatter",
		"alltoall", "scan", "exscan", "barrier", "sendrecv"}
}

// root is the rank that is the root of rooted calls (broadcast, reduce, gather, scatter).
const root = 0

// benchCase is a call with its buffers at this rank and its expected result.
type benchCase[T dtype.Number] struct {
	dst, src []T                                           // may overlap if in place
	spans    []span                                        // parts of dst that are checked after the call; nil if this rank gets no result
	whole    int                                           // elements of the vector that Result.Bytes counts
	factor   float64                                       // bus bandwidth / algorithm bandwidth, as in nccl-tests
	do       func(ctx context.Context, dst, src []T) error // makes the call; nil if it cannot work in place
	shared   [][]T                                         // allocated by collective.Alloc; freed by free
}

// free frees the shared vectors. No rank may be in a call with them.
func (b *benchCase[T]) free(c *collective.Comm) error {
	for _, v := range b.shared {
		if err := collective.Free(c, v); err != nil {
			return err
		}
	}
	b.shared = nil
	return nil
}

// caseBuilder builds the cases of one communicator and size.
type caseBuilder[T dtype.Number] struct {
	c       *collective.Comm
	op      collective.Op[T]
	n, rank int // size of the communicator, and rank of this process
	count   int // requested elements
	inPlace bool
	alloc   bool  // allocate the vectors of reductions by collective.Alloc
	shared  [][]T // the vectors that collective.Alloc has allocated
	err     error // error of collective.Alloc
}

// newCase returns the call of cfg for vectors of about the given bytes. All ranks need equal
// lengths, so vectors that are divided among the ranks are rounded down, to at least one element
// for each.
func newCase[T dtype.Number](cfg Config, c *collective.Comm, bytes int, op collective.Op[T]) (benchCase[T], error) {
	if !slices.Contains(Collectives(), cfg.Collective) {
		return benchCase[T]{}, fmt.Errorf("bench: unknown collective %q (one of %v)", cfg.Collective, Collectives())
	}
	b := caseBuilder[T]{c: c, op: op, n: c.Size(), rank: c.Rank(), count: max(1, bytes/kernel.Size[T]()), inPlace: cfg.InPlace, alloc: cfg.Alloc}
	var k benchCase[T]
	switch cfg.Collective {
	case "allreduce", "reduce", "scan", "exscan", "reducescatter":
		k = b.reduction(cfg.Collective)
	case "allgather", "gather", "scatter", "alltoall":
		k = b.parts(cfg.Collective)
	default:
		k = b.others(cfg.Collective)
	}
	// The vectors that were allocated before the failure must not stay in the shared memory.
	if k.shared = b.shared; b.err != nil {
		return k, errors.Join(b.err, k.free(c))
	}
	if k.do == nil {
		return k, fmt.Errorf("bench: %s cannot work in place", cfg.Collective)
	}
	return k, nil
}

// share returns (n-1)/n, the fraction of a vector that the other ranks hold if it is divided among
// n ranks. A rank must receive at least this fraction in a call that divides a vector among the
// ranks, and twice this fraction in an allreduce (reduce-scatter and allgather). The bus bandwidth
// is defined by this fraction.
func (c *caseBuilder[T]) share() float64 { return float64(c.n-1) / float64(c.n) }

// pair returns vectors of the given lengths, with dst <= src. If inPlace is set, the first vector
// is the beginning of the second.
func (c *caseBuilder[T]) pair(dst, src int) (d, s []T) {
	s = make([]T, src)
	if c.inPlace {
		return s[:dst], s
	}
	return make([]T, dst), s
}

// vector returns a vector for a reduction. It records an error in c.err.
func (c *caseBuilder[T]) vector(n int) []T {
	if !c.alloc {
		return make([]T, n)
	}
	v, err := collective.Alloc[T](c.c, n)
	if err != nil {
		c.err = errors.Join(c.err, err)
		return make([]T, n) // newCase reports the error
	}
	c.shared = append(c.shared, v)
	return v
}

// reduction builds the calls that reduce. The spans say how many ranks contribute to each element
// of the result: all ranks, in a scan the ranks up to this one, and in an exclusive scan the ranks
// before this one.
func (c *caseBuilder[T]) reduction(name string) benchCase[T] {
	k := benchCase[T]{whole: c.count, factor: 1}
	k.src = c.vector(c.count)
	if k.dst = k.src; !c.inPlace {
		k.dst = c.vector(c.count)
	}
	k.spans = []span{{end: c.count, ranks: c.n}}
	switch name {
	case "allreduce":
		k.factor = 2 * c.share()
		k.do = func(ctx context.Context, dst, src []T) error { return collective.AllReduce(ctx, c.c, dst, src, c.op) }
	case "reduce":
		if c.rank != root {
			k.spans = nil
		}
		k.do = func(ctx context.Context, dst, src []T) error {
			return collective.Reduce(ctx, c.c, dst, src, c.op, root)
		}
	case "scan":
		k.spans[0].ranks = c.rank + 1
		k.do = func(ctx context.Context, dst, src []T) error { return collective.Scan(ctx, c.c, dst, src, c.op) }
	case "exscan":
		// Rank 0 has no ranks before it: the call leaves its dst unchanged, so nothing is
		// checked.
		if k.spans[0].ranks = c.rank; c.rank == 0 {
			k.spans = nil
		}
		k.do = func(ctx context.Context, dst, src []T) error { return collective.ExScan(ctx, c.c, dst, src, c.op) }
	case "reducescatter":
		// collective.Chunk gives the part of each rank, as in ReduceScatter, so src may have any
		// length.
		first, end := collective.Chunk(c.count, c.n, c.rank)
		k.factor = c.share()
		if k.dst = k.dst[:end-first]; c.inPlace {
			k.dst = k.src[first:end]
		}
		k.spans = []span{{end: end - first, offset: first, ranks: c.n}}
		k.do = func(ctx context.Context, dst, src []T) error {
			return collective.ReduceScatter(ctx, c.c, dst, src, c.op)
		}
	}
	return k
}

// parts builds the calls in which each rank has an equal part of a vector. Result.Bytes counts
// all parts together, as in nccl-tests.
func (c *caseBuilder[T]) parts(name string) benchCase[T] {
	part := max(1, c.count/c.n)
	whole := part * c.n
	k := benchCase[T]{whole: whole, factor: c.share()}
	switch name {
	case "allgather", "gather":
		k.dst, k.src = make([]T, whole), make([]T, part)
		if c.inPlace {
			k.src = k.dst[c.rank*part : (c.rank+1)*part]
		}
		for r := range c.n {
			k.spans = append(k.spans, span{first: r * part, end: (r + 1) * part, from: r})
		}
		if name == "allgather" {
			// Every rank gets the whole vector, so each rank checks all spans.
			k.do = func(ctx context.Context, dst, src []T) error { return collective.AllGather(ctx, c.c, dst, src) }
			return k
		}
		if c.rank != root {
			// Only root receives. At other ranks dst is unused, and has nothing to check.
			k.spans = nil
		}
		k.do = func(ctx context.Context, dst, src []T) error { return collective.Gather(ctx, c.c, dst, src, root) }
	case "scatter":
		k.dst, k.src = c.pair(part, whole)
		k.spans = []span{{end: part, offset: c.rank * part, from: root}}
		if c.inPlace && c.rank != root { // only root has the vector
			k.dst = make([]T, part)
		}
		k.do = func(ctx context.Context, dst, src []T) error { return collective.Scatter(ctx, c.c, dst, src, root) }
	case "alltoall":
		if c.inPlace {
			return benchCase[T]{}
		}
		k.dst, k.src = c.pair(whole, whole)
		for r := range c.n {
			k.spans = append(k.spans, span{first: r * part, end: (r + 1) * part, offset: c.rank * part, from: r})
		}
		k.do = func(ctx context.Context, dst, src []T) error { return collective.AllToAll(ctx, c.c, dst, src) }
	}
	return k
}

// others builds the calls without reduction on undivided vectors.
func (c *caseBuilder[T]) others(name string) benchCase[T] {
	k := benchCase[T]{whole: c.count, factor: 1}
	switch name {
	case "barrier":
		k.whole = 0
		k.do = func(ctx context.Context, _, _ []T) error { return collective.Barrier(ctx, c.c) }
	case "broadcast": // always in place; root's vector is the source
		k.dst = make([]T, c.count)
		if c.rank == root {
			k.src = k.dst
		}
		k.spans = []span{{end: c.count, from: root}}
		k.do = func(ctx context.Context, dst, _ []T) error { return collective.Broadcast(ctx, c.c, dst, root) }
	case "sendrecv":
		if c.inPlace {
			return benchCase[T]{}
		}
		k.dst, k.src = c.pair(c.count, c.count)
		k.spans = []span{{end: c.count, from: (c.rank + c.n - 1) % c.n}}
		k.do = c.sendRecv
	}
	return k
}

// sendRecv sends a vector to the right neighbour and receives a vector from the left. The send is
// nonblocking, because all ranks send first: blocking sends of large vectors would deadlock.
func (c *caseBuilder[T]) sendRecv(ctx context.Context, dst, src []T) error {
	h := collective.ISend(ctx, c.c, (c.rank+1)%c.n, 0, src)
	err := collective.Recv(ctx, c.c, (c.rank+c.n-1)%c.n, 0, dst)
	return errors.Join(err, h.Wait(ctx))
}

// bitOp returns the named operation, if it is a bitwise operation of integers.
func bitOp[T dtype.Integer](name string) (collective.Op[T], bool) {
	switch name {
	case "bitand":
		return collective.BitAnd[T], true
	case "bitor":
		return collective.BitOr[T], true
	case "bitxor":
		return collective.BitXor[T], true
	}
	return nil, false
}

// numberOp returns the named operation, if all element types have it.
func numberOp[T dtype.Number](name string) (collective.Op[T], bool) {
	switch name {
	case "sum":
		return collective.Sum[T], true
	case "prod":
		return collective.Prod[T], true
	case "min":
		return collective.Min[T], true
	case "max":
		return collective.Max[T], true
	case "average":
		return collective.Average[T], true
	case "and":
		return collective.And[T], true
	case "or":
		return collective.Or[T], true
	case "xor":
		return collective.Xor[T], true
	}
	return nil, false
}
