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
)

// model takes its time: a step is two microbatches for each member, which take 25 to 75 ms,
// and in every fiftieth step, by chance, five times as much as on average.
type model struct {
	owner  *member
	random *rand.Rand
	params []trainer.Param
	each   time.Duration // microbatch of the present step
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
	m.owner.wait(m.each * 6 / 10)
	for i := layers - 1; i >= 0; i-- {
		m.owner.pass(computing)
		m.owner.wait(m.each / 10)
		for j, p := range m.params[i].Data {
			grad[i][j] += (p - 1) * float32(len(samples))
		}
		done(i)
	}
	return 1, nil
}

// begin draws how long the microbatches of a step take.
func (m *model) begin() {
	m.each = time.Duration(m.owner.pace * float64(25+m.random.IntN(50)) * float64(time.Millisecond))
	if m.random.IntN(50) == 0 && m.owner.pace == 1 {
		m.each = 250 * time.Millisecond
	}
}
