package growth

import (
	"fmt"
	"math"
)

// Noise estimates the gradient noise scale, which says how much the gradients of single samples
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
// and may be negative, so tr and |G|^2 are averaged (EWMA) before the division. The zero value measures
// nothing.
type Noise struct {
	every int64 // interval in steps between measurements; 0 for none
	// memory is the weight of the old value in the averages (EWMA).
	memory float64
	Averages
}

// Averages are what the measurements so far give.
type Averages struct {
	Trace, Signal float64 // averages of tr and |G|^2
	Batch         float64 // samples of the last step that was observed
}

// Groups collects the groups of a step.
type Groups struct{ count, samples, a float64 }

// Add adds a group of samples, with the squared norm of the sum of their gradients. It ignores an empty
// group.
func (g *Groups) Add(samples int64, norm float64) {
	if samples > 0 {
		g.count++
		g.samples += float64(samples)
		g.a += norm / float64(samples)
	}
}

// Weights of the old value in the averages: about twenty measurements for reports, and fifty for a batch
// that grows. A batch does not shrink again, so a fluctuation must not let it grow.
const (
	reportMemory = 0.95
	growthMemory = 0.98
)

// Observe adds a step's groups, the samples of its batch, and the squared norm of its mean gradient. A
// step is skipped if its batch is a single group.
func (n *Noise) Observe(g Groups, batch, mean float64) {
	// a is the mean over the groups of their squared norms, weighted by their samples.
	a := g.a / g.samples
	// spread is the difference of the shares of tr in a and in mean.
	spread := g.count/g.samples - 1/batch
	// The conversions prevent fused multiply-adds, which round differently on some processors.
	trace := (a - mean) / spread
	signal := (float64(g.count/g.samples*mean) - a/batch) / spread
	if !(spread > 1e-9) || math.IsNaN(trace+signal) || math.IsInf(trace+signal, 0) {
		return
	}
	n.Batch = batch
	n.Trace = float64(n.memory*n.Trace) + float64((1-n.memory)*trace)
	n.Signal = float64(n.memory*n.Signal) + float64((1-n.memory)*signal)
}

// mostBatches bounds the noise scale, in batches of the last step. Above it the true gradient is lost
// in the noise of a batch, and its estimated square may be negative.
const mostBatches = 100

// Scale returns the noise scale in samples; 0 if it is not known.
func (a Averages) Scale() float64 {
	if a.Trace <= 0 {
		return 0
	}
	return a.Trace / max(a.Signal, a.Trace/(mostBatches*a.Batch))
}

// check returns an error for averages that no measurements give.
func (a Averages) check() error {
	if math.IsNaN(a.Trace+a.Signal) || math.IsInf(a.Trace+a.Signal, 0) || !(a.Batch >= 0 && a.Batch < math.MaxInt64) {
		return fmt.Errorf("averages of the gradient noise are out of range: %+v", a)
	}
	return nil
}

// noiseElements bounds the cost of the norms: the average number of elements per step.
const noiseElements = 1 << 16

// NewNoise returns an empty estimate for gradients of the given number of elements. Norms are due in
// every step of a small model, and in every n-th step of a larger model, at all peers in the same
// steps. grows is true if a batch grows with the noise.
func NewNoise(elements int, grows bool) Noise {
	n := Noise{every: (int64(elements) + noiseElements - 1) / noiseElements, memory: reportMemory}
	if grows {
		n.memory = growthMemory
	}
	return n
}

// Measures reports whether there is an estimate at all.
func (n *Noise) Measures() bool { return n.every > 0 }

// Due reports whether the norms of a step are measured.
func (n *Noise) Due(step int64) bool { return n.every > 0 && step%n.every == 0 }
