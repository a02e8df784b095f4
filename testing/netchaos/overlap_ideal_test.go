package netchaos

import (
	"slices"
	"testing"
	"time"
)

// ideal returns the shortest possible time of a step with perfect overlap. computed describes the
// step of a peer alone; moving is the time to send all its gradients. A piece can be sent when it
// is complete, and pieces that the next step needs first are sent first. A step reads a part of a
// parameter only after the sum of its gradient has been sent. Nothing else takes time.
func ideal(computed phaseResult, moving time.Duration) time.Duration {
	const fine = 4000
	total := 0
	for _, p := range computed.Pieces {
		total += p.Bytes
	}
	tick := computed.Step / fine
	s := flow{computed: computed, queued: make([]float64, len(computed.Pieces)), order: urgency(computed.Pieces),
		rate: float64(total) / float64(moving) * float64(tick)}
	var ends []time.Duration
	for now := time.Duration(0); len(ends) < 6; now += tick {
		if s.advance(tick) {
			ends = append(ends, now)
		}
	}
	return ends[5] - ends[4]
}

// flow is the state of the simulation.
type flow struct {
	computed phaseResult
	at       time.Duration // computing time of the step so far
	pieces   int           // number of complete pieces
	queued   []float64     // bytes still to send, by piece
	order    []int         // pieces, most urgent first
	rate     float64       // bytes sent in a tick
}

// urgency returns the pieces in the order in which the next step needs them: by parameter, and within a parameter from its end to
// its beginning.
func urgency(pieces []piece) (order []int) {
	for k := range pieces {
		order = append(order, k)
	}
	slices.SortStableFunc(order, func(a, b int) int { return pieces[a].Param - pieces[b].Param })
	return order
}

// advance simulates one tick, and reports whether a step has ended in it.
func (f *flow) advance(tick time.Duration) (ended bool) {
	if !f.waits() {
		f.at += tick
	}
	for f.pieces < len(f.computed.Pieces) && f.computed.Pieces[f.pieces].At <= f.at {
		f.queued[f.pieces] += float64(f.computed.Pieces[f.pieces].Bytes)
		f.pieces++
	}
	left := f.rate
	for _, k := range f.order {
		sent := min(left, f.queued[k])
		f.queued[k] -= sent
		left -= sent
	}
	if f.at < f.computed.Step {
		return false
	}
	f.at, f.pieces = 0, 0
	return true
}

// waits reports whether the step has to read a part of a parameter whose gradient is not sent
// completely. When the first gradient is complete, all parameters have been read.
func (f *flow) waits() bool {
	if f.pieces > 0 {
		return false
	}
	for _, n := range f.computed.Needs {
		missing := func(p piece) bool { return p.Param == n.Param && p.From < n.end() && n.From < p.end() }
		for k, p := range f.computed.Pieces {
			if n.At <= f.at && f.queued[k] > 0 && missing(p) {
				return true
			}
		}
	}
	return false
}

// Communication overlaps computation if the next step needs the first complete gradient last. It
// does not overlap if the next step needs the last complete gradient first.
func TestIdeal(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		needs  []piece
		pieces []piece
		moving time.Duration
		want   time.Duration
	}{
		"nothing to move":       {[]piece{{1, 0, 4, 20 * ms}}, []piece{{1, 0, 4, 40 * ms}, {0, 0, 4, 100 * ms}}, 1, 100 * ms},
		"hidden":                {[]piece{{1, 0, 4000, 20 * ms}}, []piece{{1, 0, 4000, 30 * ms}}, 90 * ms, 100 * ms},
		"longer than computing": {[]piece{{1, 0, 4000, 20 * ms}}, []piece{{1, 0, 4000, 30 * ms}}, 200 * ms, 210 * ms},
		"at the end":            {[]piece{{0, 0, 4000, 0}}, []piece{{0, 0, 4000, 100 * ms}}, 50 * ms, 150 * ms},
		"the first goes first":  {[]piece{{0, 0, 400, 0}, {1, 0, 3600, 50 * ms}}, []piece{{1, 0, 3600, 60 * ms}, {0, 0, 400, 100 * ms}}, 100 * ms, 110 * ms},
		"one step at a time":    {[]piece{{0, 0, 400, 0}, {1, 0, 3600, 0}}, []piece{{1, 0, 3600, 60 * ms}, {0, 0, 400, 100 * ms}}, 100 * ms, 160 * ms},
		"part by part":          {[]piece{{0, 500, 2000, 0}, {0, 0, 2000, 30 * ms}}, []piece{{0, 500, 2000, 100 * ms}, {0, 0, 2000, 100 * ms}}, 50 * ms, 125 * ms},
	} {
		one := phaseResult{Step: 100 * ms, Needs: c.needs, Pieces: c.pieces}
		if got := ideal(one, c.moving); (got - c.want).Abs() > ms {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Incomplete steps do not change the medians.
func TestMediansOfBrokenSteps(t *testing.T) {
	a, b := piece{Param: 1, At: 5}, piece{Param: 0, At: 9}
	later := a
	later.At = 7
	got := medians([][]piece{nil, {a, b}, {later}, {later, b}, {later, b}})
	if !slices.Equal(got, []piece{later, b}) || medians(nil) != nil {
		t.Errorf("got %v", got)
	}
}
