package main

import "math/rand/v2"

// Sizes of the regression.
const (
	features = 3
	Batch    = 64 // samples of a step, over all peers
	rate     = 0.05
)

// Sums is what a step adds up over samples: the gradient, and last how many samples
// are in it.
type Sums [features + 1]float64

// Model predicts the scalar product of Weights and a sample. Its zero value is where
// training begins.
type Model struct {
	Steps   int64 // committed
	Weights [features]float64
}

// Gradient returns the sums over the samples lo to hi of the next step. Which samples a step
// has depends on nothing but its number.
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

// Commit takes the step that all peers have added up.
func (m *Model) Commit(sum Sums) {
	for k := range m.Weights {
		m.Weights[k] -= rate * sum[k] / sum[features]
	}
	m.Steps++
}

// Loss is the mean square error on samples that no step has.
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

func (m *Model) predict(x [features]float64) (y float64) {
	for k := range x {
		y += m.Weights[k] * x[k]
	}
	return y
}

// sample generates the sample with that number: its target is x[0] - 2 x[1] + 3 x[2],
// and some noise.
func sample(i int64) (x [features]float64, target float64) {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	for k := range x {
		x[k] = r.NormFloat64()
	}
	return x, x[0] - 2*x[1] + 3*x[2] + 0.1*r.NormFloat64()
}
