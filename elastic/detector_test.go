package elastic

import (
	"math/rand/v2"
	"testing"
	"time"
)

// asleep is the state of a process whose threads all wait.
func asleep() ProcessState { return ProcessAsleep }

// lateHost models a host with too little processor time: messages and work are late by a random
// time, and rarely by a long one.
type lateHost struct {
	rng  *rand.Rand
	most time.Duration // longest pause, in which all work of this process is late
	rare float64       // share of messages that are late by up to most
}

// late returns the delay of one message.
func (l lateHost) late() time.Duration {
	d := time.Duration(l.rng.ExpFloat64() * float64(20*time.Millisecond))
	if l.rng.Float64() < l.rare {
		d += time.Duration(l.rng.Float64() * float64(l.most))
	}
	return d
}

// watch runs a detector that observes a live process for some time, and returns the number of
// suspicions. Ticks are late in the same way as messages.
func (l lateHost) watch(t *testing.T, lasting time.Duration) (suspicions int) {
	t.Helper()
	begin := time.Unix(0, 0)
	now, ticked := begin, begin
	word := begin // when the next message arrives
	var h health
	d := detector{silence: newSilence(begin)}
	for now.Sub(begin) < lasting {
		now = now.Add(heartbeatTicks*tickPeriod + l.late())
		if late := now.Sub(ticked) - heartbeatTicks*tickPeriod; late > lateTick {
			h.worse(now)
			d.excuse(late)
		}
		ticked = now
		for !word.After(now) {
			d.word(word, false)
			word = word.Add(heartbeatTicks*tickPeriod + l.late())
		}
		switch d.judge(now, h.factor(now), asleep) {
		case probe: // the answer is a message, with the same delays
			if at := now.Add(2 * time.Millisecond).Add(l.late()); at.Before(word) {
				word = at
			}
		case suspected:
			suspicions++
			d.word(now, false)
		}
	}
	return suspicions
}

// On a host where processes wait for a processor for up to a second, no live process is suspected.
// With longer waits there are hardly any suspicions.
func TestLateHostIsNotSuspected(t *testing.T) {
	total := 0
	for seed := range uint64(40) {
		for _, most := range []time.Duration{200 * time.Millisecond, time.Second, 1600 * time.Millisecond} {
			l := lateHost{rng: rand.New(rand.NewPCG(seed, uint64(most))), most: most, rare: 0.02}
			n := l.watch(t, 2*time.Minute)
			total += n
			if most <= time.Second && n > 0 {
				t.Errorf("seed %d, pauses up to %v: suspected %d times", seed, most, n)
			}
		}
	}
	t.Logf("%d suspicions in %d minutes", total, 40*3*2)
	if total > 2 {
		t.Errorf("%d suspicions of one that lives", total)
	}
}

// A silent member is suspected at the limit of silence, and the probes do not delay the suspicion.
// A process that waits for a processor is not suspected while it waits.
func TestProcessStates(t *testing.T) {
	for _, c := range []struct {
		state    ProcessState
		least    time.Duration
		most     time.Duration
		describe string
	}{
		{ProcessUnknown, leastSilence, leastSilence + 100*time.Millisecond, "on another host"},
		{ProcessAsleep, leastSilence, leastSilence + 100*time.Millisecond, "asleep"},
		{ProcessHalted, leastSilence - confirmTime, leastSilence - confirmTime + 100*time.Millisecond, "halted"},
		{ProcessBusy, time.Hour, time.Hour, "busy"},
	} {
		begin := time.Unix(0, 0)
		d := detector{silence: newSilence(begin)}
		d.word(begin, false)
		probes, now := 0, begin
		for now.Sub(begin) < time.Hour {
			now = now.Add(50 * time.Millisecond)
			f := d.judge(now, 1, func() ProcessState { return c.state })
			if f == probe {
				probes++
			}
			if f == suspected {
				break
			}
		}
		if took := now.Sub(begin); took < c.least || took > c.most {
			t.Errorf("%s: suspected after %v, want %v to %v", c.describe, took, c.least, c.most)
		}
		if c.state != ProcessHalted && probes < 2 {
			t.Errorf("%s: asked %d times", c.describe, probes)
		}
	}
}

// The usual pauses of a member that has sent no message yet are unknown, so silence of less than
// mostSilence does not count.
func TestNotJudgedBeforeTheFirstWord(t *testing.T) {
	now := time.Unix(0, 0)
	d := detector{silence: newSilence(now)}
	for range 28 {
		now = now.Add(time.Second)
		if f := d.judge(now, 1, asleep); f != trusted {
			t.Fatalf("after %v: %v", now.Sub(time.Unix(0, 0)), f)
		}
	}
}

// If a helper has reached a silent member, the limit of silence counts a second time. A member that
// reports that it does not hear this member is suspected unless it soon reports that it hears this
// member again.
func TestVouchedAndDeaf(t *testing.T) {
	begin := time.Unix(0, 0)
	for _, c := range []struct {
		deaf, vouched bool
		want          time.Duration
	}{
		{false, true, 2 * leastSilence},
		{true, false, confirmTime},
		{true, true, confirmTime + leastSilence},
	} {
		d := detector{silence: newSilence(begin)}
		d.word(begin, c.deaf)
		now := begin
		for {
			now = now.Add(10 * time.Millisecond)
			if c.deaf {
				d.word(now, true)
			}
			f := d.judge(now, 1, asleep)
			if f == probe && c.vouched {
				d.vouch(now.Add(time.Millisecond))
			}
			if f == suspected {
				break
			}
		}
		if took := now.Sub(begin); took < c.want || took > c.want+50*time.Millisecond {
			t.Errorf("deaf %v, vouched %v: suspected after %v, want %v", c.deaf, c.vouched, took, c.want)
		}
	}
}

// The factor rises with each sign of lateness, up to a bound, and falls with time.
func TestHealth(t *testing.T) {
	now := time.Unix(0, 0)
	var h health
	if h.factor(now) != 1 {
		t.Errorf("at first it is %d", h.factor(now))
	}
	for range 20 {
		h.worse(now)
	}
	if h.factor(now) != 1+mostLateness || !h.worst() {
		t.Errorf("at worst it is %d", h.factor(now))
	}
	for i := range mostLateness {
		now = now.Add(healthStep)
		if got := h.factor(now); got != time.Duration(mostLateness-i) {
			t.Errorf("after %d steps it is %d", i+1, got)
		}
	}
	h.worse(now.Add(time.Hour))
	if got := h.factor(now.Add(time.Hour)); got != 2 {
		t.Errorf("after an hour one sign makes it %d", got)
	}
}

// The log distinguishes a member that leaves because it held up the others from a member that asked
// to leave, even if its own report comes after the view.
func TestWordForLeaving(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		heartbeat heartbeat
		blamed    time.Duration // how long ago; 0 for never
		want      string
	}{
		{heartbeat{Stalled: true}, 0, "stalled"},
		{heartbeat{Stalled: true, Busy: bodyBusy}, 0, "stalled"},
		{heartbeat{Stalled: true, Busy: "no time"}, time.Second, "stepped down: no time"},
		{heartbeat{Leaving: true}, 0, "asked"},
		{heartbeat{Leaving: true}, time.Second, "asked"},
		{heartbeat{Leaving: true, Ended: true}, 0, "closed"},
		{heartbeat{Leaving: true, Failed: true}, 0, "failed"},
		{heartbeat{}, time.Second, "stalled"},
		{heartbeat{}, makeWayAfter + time.Second, ""},
		{heartbeat{}, 0, ""},
	} {
		p := &peer{heartbeat: c.heartbeat}
		if c.blamed > 0 {
			p.blamed = now.Add(-c.blamed)
		}
		if got := p.leaves(now); got != c.want {
			t.Errorf("%+v, named %v ago: %q, want %q", c.heartbeat, c.blamed, got, c.want)
		}
	}
}
