// Package trainer trains a model on all peers of a group at once, each on its
// share of every batch, with one result: after every step all peers have the same
// parameters to the bit.
//
//	group, err := launch.Init(ctx)
//	defer group.Close()
//	err = trainer.Run(ctx, group, model, trainer.Config{
//		Samples:     60000,
//		GlobalBatch: 512,
//		Passes:      3,
//		Optimizer:   optim.SGD{Momentum: 0.9},
//		Schedule:    optim.Constant(0.05),
//	})
//
// A step goes through these stages; the files follow them:
//
//  1. plan.go, sample.go: which samples the step has, from the seed and the number
//     of the step alone, and which microbatches of them are this peer's.
//  2. step.go: the model adds the gradient sums of the microbatches to the
//     contribution, which stays untouched by reductions until the step is committed.
//  3. buckets.go: while the last backward pass still runs, finished groups of
//     parameters are reduced into a second buffer.
//  4. tail.go: last and only when every bucket is in, a small vector with a slot per
//     rank. That it is complete is the commit of the step.
//  5. step.go: the mean is the sum over the samples counted in the tail; it is
//     clipped and applied. The next tail tells all that all have done so: the step
//     is stable, and is reported.
package trainer
