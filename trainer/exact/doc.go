// Package exact turns gradients into integers, so that a step's sum has the same
// bits whatever the number and the order of the peers that computed it.
//
// Sums of floating-point numbers depend on their order. Integers do not: each
// microbatch's gradient is multiplied by a power of two that every peer knows, is
// rounded, and what is added and reduced is int32. One step of one peer, over all
// parameters i:
//
//	flat, views := exact.Views(sizes)             // scratch, each part aligned
//	for each microbatch of this peer {
//		clear(flat)
//		model.Accumulate(views, samples, done)    // this microbatch alone
//		for i := range views {
//			peaks[i] = max(peaks[i], scale.Add(i, sums[i], views[i]))
//		}
//	}
//	// AllReduce peaks with Max and sums with Sum. Now they are the same everywhere.
//	if i := exact.NotFinite(peaks); i >= 0 { ... an error, never a second attempt }
//	next := scale.Next(peaks)
//	if !scale.Fits(peaks) { ... throw sums away, compute the step again with next }
//	for i := range views {
//		scale.Mean(i, mean[i], sums[i], samples)
//	}
//	scale = next                                  // of the step after
//
// # Scales
//
// Every parameter has an exponent of its own, as the gradients of weights and biases
// differ by orders of magnitude. A value g becomes round(g * 2^exponent). A step of
// K microbatches has 31 - log2(K) bits for each value (the room), so that no sum of K
// values can wrap.
//
// A peak is the binary exponent of the largest magnitude in a microbatch's gradient
// of a parameter, one byte. Peaks are properties of single microbatches and are
// combined with Max. So the peaks of a step do not depend on who computed which
// microbatch, nor do the decisions made from them: whether the step fits, and the
// scale that follows. The next scale puts the peak of the last step 6 bits below the
// room; a step has to be computed again if some gradient grew by more than a factor
// of 64 within one step, and then the scale made from its own peaks fits for
// certain. After a fall of the gradients the exponents follow by half of the way per
// step, so that gradients that swing to and fro do not overflow again and again.
//
// The first step has no history. It is tried with a scale that suits gradients
// between 1/64 and 256, and computed again, once, if that was wrong in either
// direction.
//
// A scale belongs to the state of a job: it travels with snapshots and checkpoints.
package exact
