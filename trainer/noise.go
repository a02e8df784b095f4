package trainer

import "math"

// noise estimates how much the gradients of single samples differ, from the gradients
// of the ranks and their mean. With shares b_i of a batch B, of n ranks,
//
//	A       = sum (b_i/B) |g_i|^2
//	tr      = (A - |g|^2) B / (n-1)     trace of the covariance of a sample's gradient
//	|G|^2   = (n |g|^2 - A) / (n-1)     squared norm of the true gradient
//
// are unbiased also where the shares differ. The noise scale is tr / |G|^2 (McCandlish
// and others: An empirical model of large-batch training, 2018). A single step's values
// scatter widely and may be negative, so both are averaged before they are divided.
type noise struct {
	every         int64 // steps from one whose norms are taken to the next; 0 for none
	trace, signal float64
}

// noiseMemory is the weight of what was before in the averages: about ten measurements.
const noiseMemory = 0.9

// observe takes a step's reports and the squared norm of the mean gradient. Steps of which
// fewer than two ranks have computed something tell nothing.
func (e *noise) observe(reports []rankReport, mean float64) {
	var n, batch, a float64
	for _, s := range reports {
		if s.samples > 0 {
			n++
			batch += float64(s.samples)
			a += s.squareNorm / float64(s.samples)
		}
	}
	a /= batch
	if n < 2 || math.IsNaN(a) || math.IsInf(a, 0) || math.IsNaN(mean) || math.IsInf(mean, 0) {
		return
	}
	e.trace = noiseMemory*e.trace + (1-noiseMemory)*(a-mean)*batch/(n-1)
	e.signal = noiseMemory*e.signal + (1-noiseMemory)*(n*mean-a)/(n-1)
}

// scale is the noise scale in samples; 0 where it is not known.
func (e *noise) scale() float64 {
	if e.trace <= 0 || e.signal <= 0 || math.IsInf(e.trace/e.signal, 0) {
		return 0
	}
	return e.trace / e.signal
}

// noiseElements is how many elements' norms a step takes, on average: their cost shall
// not show.
const noiseElements = 1 << 16

// newNoise is for gradients of so many elements. Their norms are taken of each step if they are
// few, else of one in so many. All peers come to the same. With a sparse coding the sum of a step
// is of earlier gradients as much as of its own, and there is no estimate.
func newNoise(elements int, sparse bool) noise {
	if sparse {
		return noise{}
	}
	return noise{every: int64(ceilDiv(elements, noiseElements))}
}

// due reports whether the norms of a step are taken.
func (e *noise) due(step int64) bool { return e.every > 0 && step%e.every == 0 }

// square returns x*x.
func square(x float64) float64 { return x * x }
