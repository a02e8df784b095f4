package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// Errors of a step that every peer finds in the same tail.
var (
	// ErrDiverged: this peer's parameters have come to differ from those of the others,
	// again and again.
	ErrDiverged = errors.New("peers have diverged")
	// ErrNotFinite: a loss or a gradient is infinite or not a number.
	ErrNotFinite = errors.New("not a finite number")
)

// slot is what one rank tells the others in the tail of a step.
type slot struct {
	samples   int64   // in its contribution
	loss      lossSum // sum over them
	micros    int64   // that the model took for them, in microseconds; 0 if that is no measure
	most      int64   // microbatches that the rank can take; 0 for no bound
	square    float64 // squared norm of the sum of their gradients, 0 if it is not due
	fault     fault
	digest    uint64 // of the parameters before the step, 0 if it is not due
	committed int64  // the last step that this rank has committed
	stale     bool   // it knows of a later view
	nonce     uint64 // for the seed of the step's audit
	print     uint64 // of its part of the last committed step, as audits tell it
	accuses   bool   // it accuses a member in an audit
	links     news   // what it has measured of links to it
}

// fault says what a rank found wrong with its own contribution: 0 nothing, 1 the
// loss, 2+i the gradient of parameter i.
type fault int64

const (
	faultNone fault = iota
	faultLoss
	faultGradient
)

// slotWords is the number of int64 in an encoded slot.
const slotWords = 14

// Flags of a slot.
const (
	flagStale = 1 << iota
	flagAccuses
)

// putSlot writes the slot of rank to a tail that is otherwise zero. The tails of all
// ranks are summed: as every word but those of the rank itself is zero, sums
// keep all bits, those of digests, too.
func putSlot(tail []int64, rank int, s slot) {
	flags := int64(0)
	if s.stale {
		flags |= flagStale
	}
	if s.accuses {
		flags |= flagAccuses
	}
	copy(tail[rank*slotWords:], []int64{s.samples, s.loss.Hi, int64(s.loss.Lo), s.micros, s.most, int64(math.Float64bits(s.square)),
		int64(s.fault), int64(s.digest), s.committed, flags, s.links[0], s.links[1], int64(s.nonce), int64(s.print)})
}

// getSlots reads a reduced tail.
func getSlots(tail []int64) []slot {
	slots := make([]slot, len(tail)/slotWords)
	for r := range slots {
		w := tail[r*slotWords:]
		slots[r] = slot{samples: w[0], loss: lossSum{w[1], uint64(w[2])}, micros: w[3], most: w[4],
			square: math.Float64frombits(uint64(w[5])), fault: fault(w[6]), digest: uint64(w[7]), committed: w[8], stale: w[9]&flagStale != 0,
			accuses: w[9]&flagAccuses != 0, links: news{w[10], w[11]}, nonce: uint64(w[12]), print: uint64(w[13])}
	}
	return slots
}

// declared is a slot that tells nothing but which step this peer has committed, and the state after
// it.
func declared(s *state) slot { return slot{committed: s.committed(), digest: s.dueDigest()} }

// exchangeSlots tells all the ranks' slots. When it succeeds every rank has come to that call.
func exchangeSlots(ctx context.Context, s *elastic.Session, mine slot) ([]slot, error) {
	words := make([]int64, len(s.View.Members)*slotWords)
	putSlot(words, s.Rank, mine)
	if err := collective.AllReduce(ctx, s.Comm.With(collective.CallOptions{For: "tail"}), words, words, collective.Sum[int64]); err != nil {
		return nil, fmt.Errorf("tail after step %d: %w", mine.committed, err)
	}
	return getSlots(words), nil
}

// checkFaults returns ErrNotFinite with the first rank that reported a fault.
func checkFaults(slots []slot, name func(rank int) string, params []Param) error {
	for r, s := range slots {
		switch i := int(s.fault - faultGradient); {
		case s.fault == faultNone:
		case s.fault == faultLoss:
			return fmt.Errorf("loss of %s: %w", name(r), ErrNotFinite)
		case i >= 0 && i < len(params):
			return fmt.Errorf("gradient of %s at %s: %w", params[i].Name, name(r), ErrNotFinite)
		default:
			return fmt.Errorf("fault %d at %s: %w", s.fault, name(r), ErrNotFinite)
		}
	}
	return nil
}

// totals adds up samples and losses.
func totals(slots []slot) (samples int64, loss lossSum) {
	for _, s := range slots {
		samples += s.samples
		loss = loss.plus(s.loss)
	}
	return samples, loss
}

// anyStale reports whether a rank knows of a later view.
func anyStale(slots []slot) bool {
	for _, s := range slots {
		if s.stale {
			return true
		}
	}
	return false
}

// peerName names a rank for people.
func peerName(s *elastic.Session) func(rank int) string {
	return func(rank int) string { return fmt.Sprintf("rank %d (%s)", rank, s.View.Members[rank].ID.Short()) }
}

// finite reports whether x is neither infinite nor NaN.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// allFinite reports whether all of v is finite. The differences are summed, which
// is quicker than a branch for each: one that is NaN stays. The sums are variables of
// their own, as elements of an array would be in memory, which takes five times as long.
func allFinite(v []float32) bool {
	var a, b, c, d float32
	for len(v) >= 4 {
		a += v[0] - v[0]
		b += v[1] - v[1]
		c += v[2] - v[2]
		d += v[3] - v[3]
		v = v[4:]
	}
	for _, x := range v {
		a += x - x
	}
	return a+b+c+d == 0
}
