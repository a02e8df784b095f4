package stalls

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/elrun/elrun/trainer"
)

const (
	layers      = 4
	layerSize   = 2500
	bucketBytes = 4 * layerSize // a bucket for each layer
	layerTime   = 3 * time.Millisecond
)

// model takes its time: a step is 50 to 150 ms, and, in one of fifty by chance, five times
// as long as on average.
type model struct {
	owner   *member
	random  *rand.Rand
	params  []trainer.Param
	samples int // of the last Forward
}

func newModel(owner *member, random *rand.Rand) *model {
	m := &model{owner: owner, random: random}
	for i := range layers {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprint("layer", i), Shape: []int{layerSize}, Data: make([]float32, layerSize)})
	}
	return m
}

// Params implements trainer.Model.
func (m *model) Params() []trainer.Param { return m.params }

// Accumulate implements trainer.Model. The backward pass finishes one layer after the
// other, so that the first buckets are reduced while the last are computed.
func (m *model) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	for i := layers - 1; i >= 0; i-- {
		m.owner.pass(computing)
		m.owner.wait(layerTime)
		for j, p := range m.params[i].Data {
			grad[i][j] += (p - 1) * float32(len(samples))
		}
		done(i)
	}
	return 1, nil
}

// Forward implements trainer.Staged. It is part of what Accumulate takes.
func (m *model) Forward(samples []int, need func(i, from int) error) error {
	m.samples = len(samples)
	for i := range layers {
		if err := need(i, 0); err != nil {
			return err
		}
		m.owner.pass(beginning)
	}
	return nil
}

// Backward implements trainer.Staged.
func (m *model) Backward(grad [][]float32, ready func(i, from int)) (float64, error) {
	return m.Accumulate(grad, make([]int, m.samples), func(i int) { ready(i, 0) })
}

// begin spends the part of a step that varies, as one does who reads data. The shares of
// members follow how long they take to compute, which is the same for all here: so they
// stay equal.
func (m *model) begin() {
	d := time.Duration(30+m.random.IntN(100)) * time.Millisecond
	if m.random.IntN(50) == 0 && m.owner.pace == 1 {
		d = 480 * time.Millisecond
	}
	m.owner.wait(time.Duration(m.owner.pace * float64(d)))
}
