package netchaos

import (
	"testing"
	"time"
)

// ideal returns how long steps take of which each is computed as one alone, and whose
// gradients take so long to move, if nothing else takes time: a piece is sent when it is
// complete, those first that the next step needs first, and a step waits for each of its
// parameters before it reads it.
func ideal(computed phaseResult, moving time.Duration) time.Duration {
	const fine = 4000
	total := 0
	for _, p := range computed.Pieces {
		total += p.Bytes
	}
	tick := computed.Step / fine
	s := flow{computed: computed, queued: make([]float64, len(computed.Needs)),
		rate: float64(total) / float64(moving) * float64(tick)}
	var ends []time.Duration
	for now := time.Duration(0); len(ends) < 6; now += tick {
		if s.advance(tick) {
			ends = append(ends, now)
		}
	}
	return ends[5] - ends[4]
}

// flow is such a training under way.
type flow struct {
	computed phaseResult
	at       time.Duration // computed of the step
	pieces   int           // complete
	queued   []float64     // bytes that have not been sent, by parameter
	rate     float64       // bytes that are sent in a tick
}

// advance goes on by a tick, and reports whether a step has ended.
func (f *flow) advance(tick time.Duration) (ended bool) {
	if !f.waits() {
		f.at += tick
	}
	for f.pieces < len(f.computed.Pieces) && f.computed.Pieces[f.pieces].At <= f.at {
		p := f.computed.Pieces[f.pieces]
		f.queued[p.Param] += float64(p.Bytes)
		f.pieces++
	}
	left := f.rate
	for i, bytes := range f.queued {
		sent := min(left, bytes)
		f.queued[i] -= sent
		left -= sent
	}
	if f.at < f.computed.Step {
		return false
	}
	f.at, f.pieces = 0, 0
	return true
}

// waits reports whether a parameter is to be read whose sum is not there. All are there when
// the first gradient is complete.
func (f *flow) waits() bool {
	if f.pieces > 0 {
		return false
	}
	for i, bytes := range f.queued {
		if bytes > 0 && f.computed.Needs[i] <= f.at {
			return true
		}
	}
	return false
}

// What is needed last and complete first hides behind computing; what is complete last and
// needed first does not.
func TestIdeal(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		needs  [2]time.Duration
		pieces []piece
		moving time.Duration
		want   time.Duration
	}{
		"nothing to move":       {[2]time.Duration{0, 20 * ms}, []piece{{1, 1, 40 * ms}, {0, 1, 100 * ms}}, 1, 100 * ms},
		"hidden":                {[2]time.Duration{0, 20 * ms}, []piece{{1, 1000, 30 * ms}}, 90 * ms, 100 * ms},
		"longer than computing": {[2]time.Duration{0, 20 * ms}, []piece{{1, 1000, 30 * ms}}, 200 * ms, 210 * ms},
		"at the end":            {[2]time.Duration{0, 20 * ms}, []piece{{0, 1000, 100 * ms}}, 50 * ms, 150 * ms},
		"the first goes first":  {[2]time.Duration{0, 50 * ms}, []piece{{1, 900, 60 * ms}, {0, 100, 100 * ms}}, 100 * ms, 110 * ms},
		"one step at a time":    {[2]time.Duration{0, 0}, []piece{{1, 900, 60 * ms}, {0, 100, 100 * ms}}, 100 * ms, 160 * ms},
	} {
		one := phaseResult{Step: 100 * ms, Needs: c.needs[:], Pieces: c.pieces}
		if got := ideal(one, c.moving); (got - c.want).Abs() > ms {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
