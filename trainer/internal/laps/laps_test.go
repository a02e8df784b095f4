package laps

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// player plays random laps on a clock.
type player struct {
	*rand.Rand
	clock Clock
	now   time.Time
	last  time.Time     // the last commit, or the entry of the session
	owed  time.Duration // of the open step before last
	step  int64
}

// after returns a random later time.
func (p *player) after() time.Time {
	p.now = p.now.Add(time.Duration(p.IntN(100)))
	return p.now
}

// lap plays a random event within a session.
func (p *player) lap() {
	switch c := &p.clock; p.IntN(8) {
	case 0:
		c.Begin(p.after())
	case 1, 2:
		c.Call(p.after(), time.Duration(p.IntN(50)))
	case 3:
		c.Ahead(p.after())
	case 4:
		if c.begun {
			c.Fail(p.after())
		}
	case 5:
		c.Computed(p.after())
	case 6:
		early := p.now.Add(-time.Duration(p.IntN(50)))
		c.Recorded(early, early, p.after())
	default:
		c.Lap(p.after(), []Part{Point, Reduce, Apply}[p.IntN(3)])
	}
}

// close closes the step and checks its times.
func (p *player) close(t *testing.T) {
	kept, ahead := p.clock.open[Compute], p.clock.ahead
	got := p.clock.Close(p.after(), kept, time.Duration(p.IntN(200)))
	if want := p.now.Sub(p.last) + p.owed - ahead; got.Total() != want || got[Compute] != kept || slices.Min(got[:]) < 0 {
		t.Errorf("step %d has %v, together %v, want %v with %v of computing", p.step, got, got.Total(), want, kept)
	}
	p.step, p.last, p.owed = p.step+1, p.now, ahead
}

// Whatever happens in a session, the times of its steps add up to the time between the commits, and the time of a session that
// breaks is in the step that it had begun.
func TestStepsFollowWithoutAGap(t *testing.T) {
	for seed := range uint64(200) {
		p := player{Rand: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1, 0), step: 1}
		for range 5 {
			p.clock.Enter(p.step, p.after())
			for p.last = p.now; p.IntN(12) > 0; {
				if p.lap(); p.IntN(8) == 0 {
					p.close(t)
				}
			}
			if p.clock.begun {
				p.owed += p.now.Sub(p.last)
			} else {
				p.owed = p.clock.open[Compute] + p.clock.open[Lost]
			}
			p.clock.Leave(p.now)
			p.clock.Lap(p.after(), Point) // ignored
			if p.IntN(4) == 0 {           // the state of others
				p.step, p.owed = p.step+3, 0
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Computing whose result is not in the step is lost.
func TestDroppedComputingIsLost(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	var c Clock
	c.Enter(3, at(0))
	c.Begin(at(1))
	c.Call(at(11), 4*time.Millisecond)
	c.Computed(at(12))
	if c.Busy() != 12*time.Millisecond {
		t.Errorf("busy for %v, want 12 ms", c.Busy())
	}
	c.Recorded(at(15), at(19), at(20))
	want := Times{Lost: 5, Point: 1, Data: 4, Compute: 1, Wait: 6, Reduce: 1, Apply: 3, Commit: 2}
	for p := range want {
		want[p] *= time.Millisecond
	}
	if got := c.Close(at(23), time.Millisecond, 6*time.Millisecond); got != want {
		t.Errorf("times %v, want %v", got, want)
	}
}
