package trainer

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Errors of a step that every peer finds in the same tail.
var (
	// ErrDiverged: peers have different parameters or count different steps.
	ErrDiverged = errors.New("peers have diverged")
	// ErrNotFinite: a loss or a gradient is infinite or not a number.
	ErrNotFinite = errors.New("not a finite number")
)

// slot is what one rank tells the others in the tail of a step.
type slot struct {
	samples   int64   // in its contribution
	loss      float64 // sum over them
	speed     int64   // samples a second in the model, 0 if unknown
	fault     fault
	digest    uint64 // of the parameters before the step
	committed int64  // the last step that this rank has committed
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
const slotWords = 6

// putSlot writes the slot of rank to a tail that is otherwise zero. The tails of all
// ranks are summed: as every word but those of the rank itself is zero, sums
// keep all bits, those of floating-point numbers and digests, too.
func putSlot(tail []int64, rank int, s slot) {
	copy(tail[rank*slotWords:], []int64{s.samples, int64(math.Float64bits(s.loss)), s.speed,
		int64(s.fault), int64(s.digest), s.committed})
}

// getSlots reads a reduced tail.
func getSlots(tail []int64) []slot {
	slots := make([]slot, len(tail)/slotWords)
	for r := range slots {
		w := tail[r*slotWords:]
		slots[r] = slot{samples: w[0], loss: math.Float64frombits(uint64(w[1])), speed: w[2],
			fault: fault(w[3]), digest: uint64(w[4]), committed: w[5]}
	}
	return slots
}

// checkAgreement returns ErrDiverged, with the ranks named, unless all ranks have
// committed the same step and have the same parameters after it. Those who differ
// from the most are to blame; of equal numbers, those without the lowest rank.
func checkAgreement(slots []slot, name func(rank int) string) error {
	count := make(map[state]int)
	for _, s := range slots {
		count[s.state()]++
	}
	right := slots[0].state()
	for _, s := range slots { // in rank order, so that ties fall alike everywhere
		if count[s.state()] > count[right] {
			right = s.state()
		}
	}
	var wrong []string
	for r, s := range slots {
		if s.state() != right {
			wrong = append(wrong, fmt.Sprintf("%s has %v", name(r), s.state()))
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%w: %s; the others have %v", ErrDiverged, strings.Join(wrong, ", "), right)
}

// state is what all ranks must agree on before a step.
type state struct {
	committed int64
	digest    uint64
}

// state is the part of a slot that all ranks must have in common.
func (s slot) state() state { return state{s.committed, s.digest} }

// String describes the state in an error.
func (s state) String() string {
	return fmt.Sprintf("digest %016x after step %d", s.digest, s.committed)
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

// totals adds up samples and losses in rank order.
func totals(slots []slot) (samples int64, loss float64) {
	for _, s := range slots {
		samples += s.samples
		loss += s.loss
	}
	return samples, loss
}

// finite reports whether x is neither infinite nor NaN.
func finite[T float32 | float64](x T) bool { return x-x == 0 }

// allFinite reports whether all of v is finite. The differences are summed, which
// is quicker than a branch for each: one that is NaN stays.
func allFinite(v []float32) bool {
	var s [4]float32
	for len(v) >= 4 {
		s[0] += v[0] - v[0]
		s[1] += v[1] - v[1]
		s[2] += v[2] - v[2]
		s[3] += v[3] - v[3]
		v = v[4:]
	}
	for _, x := range v {
		s[0] += x - x
	}
	return s[0]+s[1]+s[2]+s[3] == 0
}
