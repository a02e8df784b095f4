// Package differential_test compares package collective with Open MPI. Both make the same calls with the same inputs, and the
// results of every rank must be equal in every byte.
//
//	make differential        # or: go test ./testing/differential
//
// The inputs are integers so small that sums and products of floats are exact. So the results do
// not depend on the order of the operations, which differs between elrun and Open MPI. The tests
// need mpicc and mpirun.
package differential_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/testing/cluster"
)

func TestOpenMPI(t *testing.T) {
	cases := allCases()
	m := newOpenMPI(t, cases)
	for _, n := range []int{1, 2, 3, 4, 5, 8} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			compare(t, cases, m.run(t, n))
		})
	}
}

// compare runs the cases with elrun and compares the results with Open MPI's. want has for each
// rank the results of Open MPI, with all cases one after the other.
func compare(t *testing.T, cases []testCase, want [][]byte) {
	cluster.Run(t, len(want), func(ctx context.Context, c *collective.Comm) error {
		rest := want[c.Rank()]
		for _, tc := range cases {
			size := 0
			for _, algorithm := range tc.algorithms() {
				got, err := tc.run(ctx, c.With(collective.CallOptions{Algorithm: algorithm}))
				if err != nil {
					return fmt.Errorf("%v by %v: %w", tc, algorithm, err)
				}
				if d := difference(got, rest); d != "" {
					return fmt.Errorf("%v by %v: %s", tc, algorithm, d)
				}
				size = len(got)
			}
			rest = rest[size:]
		}
		if len(rest) > 0 {
			return fmt.Errorf("rank %d of Open MPI wrote %d bytes more than expected", c.Rank(), len(rest))
		}
		return nil
	})
}

// difference describes where got differs from the beginning of want, or returns "".
func difference(got, want []byte) string {
	if len(want) < len(got) {
		return fmt.Sprintf("%d bytes of Open MPI are left, want %d", len(want), len(got))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d of %d is %#02x, with Open MPI %#02x", i, len(got), got[i], want[i])
		}
	}
	return ""
}

// algorithms lists the algorithms with which a case is run: the choice of package collective, and
// for allreduce also each algorithm by name.
func (t testCase) algorithms() []collective.Algorithm {
	if t.collective == "allreduce" {
		return []collective.Algorithm{collective.Auto, collective.Ring, collective.RecursiveDoubling, collective.Rabenseifner}
	}
	return []collective.Algorithm{collective.Auto}
}

// run runs the case at one rank and returns the bytes of its result.
func (t testCase) run(ctx context.Context, comm *collective.Comm) ([]byte, error) {
	switch t.typ {
	case "int8":
		return call(ctx, comm, t, integerOp[int8](t.op))
	case "int32":
		return call(ctx, comm, t, integerOp[int32](t.op))
	case "int64":
		return call(ctx, comm, t, integerOp[int64](t.op))
	case "uint8":
		return call(ctx, comm, t, integerOp[uint8](t.op))
	case "uint32":
		return call(ctx, comm, t, integerOp[uint32](t.op))
	case "uint64":
		return call(ctx, comm, t, integerOp[uint64](t.op))
	case "float32":
		return call(ctx, comm, t, numberOp[float32](t.op))
	case "float64":
		return call(ctx, comm, t, numberOp[float64](t.op))
	}
	return nil, fmt.Errorf("unknown type %q", t.typ)
}

// element lists the types to which inputs can be converted.
type element interface {
	collective.Integer | float32 | float64
}

// call runs a case with elements of type T.
func call[T element](ctx context.Context, comm *collective.Comm, c testCase, op collective.Op[T]) ([]byte, error) {
	in, out := c.lengths(comm.Size())
	src, dst := inputs[T](c, comm.Rank(), in), make([]T, out)
	var err error
	switch c.collective {
	case "allreduce":
		err = collective.AllReduce(ctx, comm, dst, src, op)
	case "reducescatter":
		err = collective.ReduceScatter(ctx, comm, dst, src, op)
	case "scan":
		err = collective.Scan(ctx, comm, dst, src, op)
	case "allgather":
		err = collective.AllGather(ctx, comm, dst, src)
	case "alltoall":
		err = collective.AllToAll(ctx, comm, dst, src)
	case "loc":
		for i := range c.count {
			src[2*i], src[2*i+1] = T(c.input(comm.Rank(), i)), T((comm.Rank()+i)%comm.Size())
		}
		err = collective.AllReduce(ctx, comm, dst, src, op)
	default:
		dst, err = exchange(ctx, comm, c, op)
	}
	return kernel.Bytes(dst), err
}

// inputs returns the first n elements of a rank's source.
func inputs[T element](c testCase, rank, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(c.input(rank, i))
	}
	return v
}

// numberOp returns the reduction with a name if all types have it, otherwise nil.
func numberOp[T collective.Number](name string) collective.Op[T] {
	switch name {
	case "sum":
		return collective.Sum[T]
	case "prod":
		return collective.Prod[T]
	case "min":
		return collective.Min[T]
	case "max":
		return collective.Max[T]
	case "minloc":
		return collective.MinLoc[T]
	case "maxloc":
		return collective.MaxLoc[T]
	}
	return nil
}

// integerOp returns the reduction with a name if integers have it, otherwise nil.
func integerOp[T collective.Integer](name string) collective.Op[T] {
	switch name {
	case "and":
		return collective.And[T]
	case "or":
		return collective.Or[T]
	case "xor":
		return collective.Xor[T]
	case "bitand":
		return collective.BitAnd[T]
	case "bitor":
		return collective.BitOr[T]
	case "bitxor":
		return collective.BitXor[T]
	}
	return numberOp[T](name)
}
