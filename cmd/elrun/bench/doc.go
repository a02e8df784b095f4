// Package bench measures the calls of package collective and checks their results. All ranks of a
// communicator call Run with the same Config:
//
//	sizes, err := bench.ParseSizes("4,1K,64K")
//	err = bench.Run(ctx, comm, bench.Config{Collective: "allreduce", Bytes: sizes, Type: dtype.F32, Op: "sum"}, report)
//
// An iteration changes the input, passes a barrier, times one call, and passes another barrier.
// Its time is the longest of all ranks. A few warm-up iterations precede the timed ones.
//
// # Inputs
//
// Element i of rank r in iteration t is the small integer x = (7r + 3i + 5t) mod P; for products,
// it is 1 + x mod 2, so that results stay small. P is a prime so small that sums over 16 ranks
// are exact in the element type. A result then depends only on 3i + 5t mod P. So each element of
// each iteration is checked against a table of P entries, computed in 64-bit integers.
package bench
