package trainer

import "math"

// noise estimates the gradient noise scale, which says how much the gradients of single samples
// differ. The estimate uses the gradients of the ranks and their mean. Let B be the samples in the
// batch, b_i the samples of rank i of n, g_i the mean gradient over the samples of rank i, and g the
// mean gradient of the batch. Then
//
//	A       = sum (b_i/B) |g_i|^2
//	tr      = (A - |g|^2) B / (n-1)     trace of the covariance of a sample's gradient
//	|G|^2   = (n |g|^2 - A) / (n-1)     squared norm of the true gradient
//
// are unbiased estimates, also for unequal shares. The noise scale is tr / |G|^2 (McCandlish and
// others: An empirical model of large-batch training, 2018). The values of single steps vary widely
// and may be negative, so tr and |G|^2 are averaged (EWMA) before the division.
type noise struct {
	every         int64   // interval in steps between measurements; 0 for none
	trace, signal float64 // averages of tr and |G|^2
}

// noiseMemory is the weight of the old value in the averages (EWMA): about ten measurements.
const noiseMemory = 0.9

// observe adds a step's reports and the squared norm of its mean gradient. A step in which fewer
// than two ranks computed gradients is skipped.
func (n *noise) observe(reports []rankReport, mean float64) {
	var ranks, batch, a float64
	for _, s := range reports {
		if s.samples > 0 {
			ranks++
			batch += float64(s.samples)
			a += s.squareNorm / float64(s.samples)
		}
	}
	// a is now the mean over the ranks of their squared norms, weighted by their samples.
	a /= batch
	if ranks < 2 || math.IsNaN(a) || math.IsInf(a, 0) || math.IsNaN(mean) || math.IsInf(mean, 0) {
		return
	}
	n.trace = noiseMemory*n.trace + (1-noiseMemory)*(a-mean)*batch/(ranks-1)
	n.signal = noiseMemory*n.signal + (1-noiseMemory)*(ranks*mean-a)/(ranks-1)
}

// scale returns the noise scale in samples; 0 if it is not known.
func (n *noise) scale() float64 {
	// Estimates of few steps may be negative or zero; then the noise scale is unknown.
	if n.trace <= 0 || n.signal <= 0 || math.IsInf(n.trace/n.signal, 0) {
		return 0
	}
	return n.trace / n.signal
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
