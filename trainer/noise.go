package trainer

import "math"

// noise estimates the gradient noise scale, which says how much the gradients of single samples
// differ. The estimate uses the gradients of n groups of samples and the mean gradient of the batch. A
// group is what a rank computes in its first call of the model, and so a small part of the batch also
// where a rank computes all of it. Let B be the samples in the batch, c_i the samples of group i, C
// their sum, g_i the mean gradient over the group, and g the mean gradient of the batch. Then
//
//	A       = sum (c_i/C) |g_i|^2
//	tr      = (A - |g|^2) / (n/C - 1/B)             trace of the covariance of a sample's gradient
//	|G|^2   = (n/C |g|^2 - A/B) / (n/C - 1/B)       squared norm of the true gradient
//
// are unbiased estimates, also for unequal groups. The noise scale is tr / |G|^2 (McCandlish and
// others: An empirical model of large-batch training, 2018). The values of single steps vary widely
// and may be negative, so tr and |G|^2 are averaged (EWMA) before the division.
type noise struct {
	every         int64   // interval in steps between measurements; 0 for none
	trace, signal float64 // averages of tr and |G|^2
	batch         float64 // samples of the last step that was observed
}

// noiseMemory is the weight of the old value in the averages (EWMA): about twenty measurements.
const noiseMemory = 0.95

// observe adds a step's reports and the squared norm of its mean gradient. A step is skipped if its
// batch is a single group.
func (n *noise) observe(reports []rankReport, mean float64) {
	var groups, samples, batch, a float64
	for _, s := range reports {
		batch += float64(s.samples)
		if s.group > 0 {
			groups++
			samples += float64(s.group)
			a += s.groupNorm / float64(s.group)
		}
	}
	// a is now the mean over the groups of their squared norms, weighted by their samples.
	a /= samples
	// spread is the difference of the shares of tr in a and in mean.
	spread := groups/samples - 1/batch
	if !(spread > 1e-9) || math.IsNaN(a) || math.IsInf(a, 0) || math.IsNaN(mean) || math.IsInf(mean, 0) {
		return
	}
	n.batch = batch
	n.trace = noiseMemory*n.trace + (1-noiseMemory)*(a-mean)/spread
	n.signal = noiseMemory*n.signal + (1-noiseMemory)*(groups/samples*mean-a/batch)/spread
}

// mostBatches bounds the noise scale, in batches of the last step. Above it the true gradient is lost
// in the noise of a batch, and its estimated square may be negative.
const mostBatches = 100

// scale returns the noise scale in samples; 0 if it is not known.
func (n *noise) scale() float64 {
	if n.trace <= 0 {
		return 0
	}
	return n.trace / max(n.signal, n.trace/(mostBatches*n.batch))
}

// noiseElements bounds the cost of the norms: the average number of elements per step.
const noiseElements = 1 << 16

// newNoise returns an empty estimate for gradients of the given number of elements. Norms are due in
// every step of a small model, and in every n-th step of a larger model, at all peers in the same
// steps. With a sparse coding there is no estimate, because the sum of a step contains parts of
// earlier gradients.
func newNoise(elements int, sparse bool) noise {
	if sparse {
		return noise{}
	}
	return noise{every: int64(ceilDiv(elements, noiseElements))}
}

// due reports whether the norms of a step are measured.
func (n *noise) due(step int64) bool { return n.every > 0 && step%n.every == 0 }

// square returns x*x.
func square(x float64) float64 { return x * x }
