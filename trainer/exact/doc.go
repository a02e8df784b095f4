// Package exact turns gradients into integers, so that the sum of a step has the same bits for
// every number and order of the peers that compute it (reproducible summation).
//
// Floating-point addition is not associative, so float sums depend on their order; integer sums
// do not. Each microbatch's gradient is multiplied by a power of two that every peer knows, and
// rounded; the sums and reductions are in int32. One step of one peer, over all parameters i:
//
//	flat, views := exact.Views(sizes)             // scratch, each part aligned
//	for each microbatch of this peer {
//		clear(flat)
//		...                                       // the model adds the gradient of this microbatch to views
//		for i := range views {
//			peaks[i] = max(peaks[i], scale.Add(i, sums[i], views[i]))
//		}
//	}
//	// AllReduce peaks with Max and sums with Sum. Now they are equal at all peers.
//	if i := exact.NotFinite(peaks); i >= 0 { ... an error, never a second attempt }
//	next := scale.Next(peaks)
//	if !scale.Fits(peaks) { ... discard sums, compute the step again with next }
//	for i := range views {
//		scale.Mean(i, mean[i], sums[i], float64(samples))
//	}
//	scale = next                                  // the scale of the next step
//
// # Scales
//
// Every parameter has an exponent of its own, because the gradients of weights and biases differ by
// orders of magnitude. A value g becomes round(g * 2^exponent). In a step of K microbatches the
// magnitude of each value has at most 30 - floor(log2(K)) bits. This number is called the capacity;
// with it no sum of K values can overflow.
//
// A peak is the binary exponent of the largest magnitude in a microbatch's gradient of a
// parameter, in one byte. Peaks are properties of single microbatches and are combined with Max.
// So the peaks of a step do not depend on the assignment of microbatches, and neither do the two
// decisions made from them: whether the step fits, and the next scale.
//
// The next scale puts the peak of the last step below the capacity by the headroom: 6 bits, or a
// third of the capacity if that is less (from 8192 microbatches on). A step has to be computed
// again if some gradient grew by more than a factor of 2^headroom (64) within one step; then the
// scale made from the step's own peaks is certain to fit. When gradients shrink, the exponents
// follow by half of the way per step (hysteresis), so that oscillating gradients do not overflow
// again and again.
//
// A parameter has no history in the first step, and as long as all its gradients are zero. Its
// scale then suits a largest gradient between 1/128 and 256, or a narrower range from 512
// microbatches on. The step is computed again, at most once, if a gradient is outside on either
// side.
//
// A scale is part of the state of a job: snapshots and checkpoints contain it.
//
// # Invariants
//
// No operation of this package depends on the number of peers, on the assignment of microbatches,
// or on the machine. Package exact has no state; a Scale is an immutable value.
package exact
