package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
)

// Sizes of the regression.
const (
	features = 3
	batch    = 64 // samples of a step, over all peers
	rate     = 0.05
)

// Sums is what a step adds up over samples: the gradient, and last how many samples
// are in it.
type Sums [features + 1]float64

// Model predicts the scalar product of Weights and a sample. It is the state that all
// peers hold alike (elastic.State), and can be brought forward step by step
// (elastic.Replayer). Its zero value is where training begins.
type Model struct {
	Steps   int64 // committed
	Weights [features]float64
	Last    Sums // of the last step
}

// Gradient returns the sums of a rank's part of the next step: every size-th sample.
// Which samples a step has depends on nothing but its number.
func (m *Model) Gradient(rank, size int) Sums {
	var sum Sums
	for i := rank; i < batch; i += size {
		x, target := sample(m.Steps*batch + int64(i))
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
	m.Steps, m.Last = m.Steps+1, sum
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

// Step returns the last committed step.
func (m *Model) Step() int64 { return m.Steps }

// Save writes the whole state, for peers that join.
func (m *Model) Save(w io.Writer) error { return binary.Write(w, binary.LittleEndian, m) }

// Load replaces the state by one that Save wrote.
func (m *Model) Load(r io.Reader) error { return binary.Read(r, binary.LittleEndian, m) }

// Update writes what leads from the step before to this one. It is much shorter than a
// state where that has the moments of an optimizer, too.
func (m *Model) Update(w io.Writer) error { return binary.Write(w, binary.LittleEndian, m.Last) }

// Apply commits the step that another peer's Update wrote.
func (m *Model) Apply(r io.Reader) error {
	var sum Sums
	if err := binary.Read(r, binary.LittleEndian, &sum); err != nil {
		return err
	}
	if sum[features] != batch {
		return fmt.Errorf("an update of %v samples, want %d", sum[features], batch)
	}
	m.Commit(sum)
	return nil
}
