package main

import "math/rand/v2"

// Sizes of the regression.
const (
	features = 3
	Batch    = 64 // samples of a step, over all peers
	rate     = 0.05
)

// Sums is the vector that peers sum in a step: the gradient, and as the last element the number
// of samples.
type Sums [features + 1]float64

// Model is a linear model: it predicts the scalar product of Weights and a sample. Its zero value
// is the start of training.
type Model struct {
	Steps   int64 // committed steps
	Weights [features]float64
}

// Gradient returns the sums over the samples [lo, hi) of the next step. The samples depend only
// on the number of the step.
func (m *Model) Gradient(lo, hi int) Sums {
	var sum Sums
	for i := lo; i < hi; i++ {
		x, target := sample(m.Steps*Batch + int64(i))
		miss := m.predict(x) - target
		for k := range x {
			sum[k] += miss * x[k]
		}
		sum[features]++
	}
	return sum
}

// Commit applies the sum over all peers and completes the step.
func (m *Model) Commit(sum Sums) {
	for k := range m.Weights {
		m.Weights[k] -= rate * sum[k] / sum[features]
	}
	m.Steps++
}

// Loss returns the mean squared error on samples that are in no step.
func (m *Model) Loss() float64 {
	const n = 1000
	loss := 0.0
	for i := range int64(n) {
		x, target := sample(-1 - i)
		miss := m.predict(x) - target
		loss += miss * miss / n
	}
	return loss
}

// predict returns the scalar product of the weights and x.
func (m *Model) predict(x [features]float64) (y float64) {
	for k := range x {
		y += m.Weights[k] * x[k]
	}
	return y
}

// sample generates sample number i: its target is x[0] - 2 x[1] + 3 x[2] and some noise.
func sample(i int64) (x [features]float64, target float64) {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	for k := range x {
		x[k] = r.NormFloat64()
	}
	return x, x[0] - 2*x[1] + 3*x[2] + 0.1*r.NormFloat64()
}
