// Package differential_test compares collective with Open MPI: both carry out the same
// calls on the same inputs, and every byte of every rank's result must be equal.
//
//	make differential        # or: go test ./testing/differential
//
// The inputs are integers so small that float sums and products are exact, and so
// do not depend on the order in which either side adds. It needs mpicc and mpirun.
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

// compare carries out the cases with elrun at as many ranks as there are results of
// Open MPI, in which the results of all cases follow one another.
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

// difference says where got differs from the beginning of want, or "".
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

// algorithms lists the ways in which a case is carried out: the one that collective
// chooses, and for the most important call every other.
func (c testCase) algorithms() []collective.Algorithm {
	if c.collective == "allreduce" {
		return []collective.Algorithm{collective.Auto, collective.Ring, collective.RecursiveDoubling, collective.Rabenseifner}
	}
	return []collective.Algorithm{collective.Auto}
}

// run carries out the case at one rank and returns its result as it is in memory.
func (c testCase) run(ctx context.Context, comm *collective.Comm) ([]byte, error) {
	switch c.typ {
	case "int8":
		return call(ctx, comm, c, integerOp[int8](c.op))
	case "int32":
		return call(ctx, comm, c, integerOp[int32](c.op))
	case "int64":
		return call(ctx, comm, c, integerOp[int64](c.op))
	case "uint8":
		return call(ctx, comm, c, integerOp[uint8](c.op))
	case "uint32":
		return call(ctx, comm, c, integerOp[uint32](c.op))
	case "uint64":
		return call(ctx, comm, c, integerOp[uint64](c.op))
	case "float32":
		return call(ctx, comm, c, numberOp[float32](c.op))
	case "float64":
		return call(ctx, comm, c, numberOp[float64](c.op))
	}
	return nil, fmt.Errorf("unknown type %q", c.typ)
}

// element lists the types in which inputs can be converted.
type element interface {
	collective.Integer | float32 | float64
}

// call carries out a case with elements of type T.
func call[T element](ctx context.Context, comm *collective.Comm, c testCase, op collective.Op[T]) ([]byte, error) {
	in, out := c.lengths(comm.Size())
	src, dst := make([]T, in), make([]T, out)
	for i := range src {
		src[i] = T(c.input(comm.Rank(), i))
	}
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
	default:
		err = fmt.Errorf("unknown collective %q", c.collective)
	}
	return kernel.Bytes(dst), err
}

// numberOp returns a reduction that every type has, or nil.
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
	}
	return nil
}

// integerOp returns a reduction of integers, or nil.
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
