package trainer

import "github.com/elrun/elrun/collective"

// Housed is a runner that has gradients and nothing else, for tests that need ranks, which those
// inside this package cannot have.
type Housed struct {
	run  runner
	sums *plain
}

// NewHoused returns one with gradients of n elements.
func NewHoused(n int) *Housed {
	h := new(Housed)
	h.sums, _ = newPlain(newLayout([]Param{{Name: "p", Shape: []int{n}, Data: make([]float32, n)}}, n))
	h.run.open.sums = h.sums
	return h
}

// House does what the runner does when a session begins.
func (h *Housed) House(c *collective.Comm) { h.run.house(c) }

// Vectors returns the gradients of this rank, and what those of all are reduced into.
func (h *Housed) Vectors() (own, staging []float32) {
	return h.sums.own.flat, h.sums.bufs.staging.flat
}

// Leave gives all memory back.
func (h *Housed) Leave() error { return leave(h.run.housing.rooms, nil) }
