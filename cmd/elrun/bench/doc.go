// Package bench measures the calls of package collective and checks what they
// compute. All ranks of a communicator call Run with one Config:
//
//	sizes, err := bench.ParseSizes("4,1K,64K")
//	err = bench.Run(ctx, comm, bench.Config{Collective: "allreduce", Bytes: sizes, Type: kernel.F32, Op: "sum"}, report)
//
// An iteration changes the input, passes a barrier, times one call, and passes another
// barrier; its time is the longest of all ranks. Before the first there are a few that are not counted.
//
// # Inputs
//
// Element i of rank r in iteration t is a small integer (7r + 3i + 5t) mod P, or 1 plus
// this mod 2 for products. P is a prime so small that the sums of 16 ranks are exact
// in the element type. So a result element follows from 3i + 5t mod P alone, and
// every element of every iteration is checked against a table of P entries that
// is worked out in 64-bit integers.
package bench
