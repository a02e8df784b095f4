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
	bucketBytes = 4 * layerSize // one bucket for each layer
	layerTime   = 3 * time.Millisecond
)

// model makes steps of 50 to 150 ms. At random, one step in fifty takes five times the mean.
type model struct {
	owner  *member
	random *rand.Rand
	params []trainer.Param
}

func newModel(owner *member, random *rand.Rand) *model {
	m := &model{owner: owner, random: random}
	for i := range layers {
		m.params = append(m.params, trainer.Param{Name: fmt.Sprint("layer", i), Shape: []int{layerSize}, Data: make([]float32, layerSize)})
	}
	return m
}

// trained returns the model for trainer.Run.
func (m *model) trained() trainer.Model {
	return trainer.Model{Params: m.params, Gradient: m.gradient, Waits: true}
}

// gradient completes one layer after another in the backward pass, so that the first buckets are reduced while the last are
// computed. Its duration includes the forward pass.
func (m *model) gradient(b *trainer.Batch) (float64, error) {
	for i := range layers {
		b.Wait(i, 0)
		m.owner.pass(beginning)
	}
	b.Grad(0)
	for i := layers - 1; i >= 0; i-- {
		m.owner.pass(computing)
		m.owner.wait(layerTime)
		grad := b.Grad(i)
		for j, p := range m.params[i].Data {
			grad[j] += (p - 1) * float32(len(b.Samples()))
		}
		b.Done(i, 0)
	}
	return 1, nil
}

// begin waits for the part of a step's time that varies, as if the program read data. Shares depend
// only on the time in gradient, which is the same at all members, so they stay equal.
func (m *model) begin() {
	d := time.Duration(30+m.random.IntN(100)) * time.Millisecond
	if m.random.IntN(50) == 0 && m.owner.pace == 1 {
		d = 480 * time.Millisecond
	}
	m.owner.wait(time.Duration(m.owner.pace * float64(d)))
}
