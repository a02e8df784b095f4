package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

const (
	// A trial computes for about trialTime, but at most trialMicrobatches microbatches.
	trialTime         = 100 * time.Millisecond
	trialMicrobatches = 15
	// A trial measures at least trialLeast microbatches, to separate the overhead of the first
	// microbatch. If a microbatch takes longer than trialLong, the trial measures only one.
	trialLeast = 3
	trialLong  = 2 * time.Second
)

// trial measures the speed of this peer before it joins.
type trial struct {
	step   *openStep // the step whose microbatches the trial computes
	always bool      // the peer is admitted at any speed
}

// Trial computes some microbatches of the open step, discards them, and returns the measured speed.
// It implements elastic.Trier. This peer is in no session, so its contribution to the step is
// empty. Trial empties the contribution at the end, so it changes neither the ledger nor the
// parameters.
func (t trial) Trial(ctx context.Context) (elastic.Candidate, error) {
	me := elastic.Candidate{Forced: t.always, Most: t.step.balance.most}
	if me.Forced || t.step.state.void || t.step.microbatches() == 0 {
		return me, nil // the speed is not used
	}
	times, err := t.rehearse(ctx)
	t.step.own.forget()
	t.step.reopen()
	if err != nil {
		return me, fmt.Errorf("trainer: trial of step %d: %w", t.step.own.step, err)
	}
	first := times[0]
	if len(times) > 1 {
		times = times[1:]
	}
	// Use the mean rather than the median, because pauses of a peer make it slower on average. If
	// this underestimates the speed, the candidate is parked and has another trial later.
	pace := max(time.Microsecond, mean(times))
	// A smaller difference comes from cold caches and the resolution of timers.
	if first > pace+pace/2 {
		me.Fixed = first - pace
	}
	me.Speed = loadbal.Speed(1, pace.Microseconds())
	t.step.balance.assume(me.Speed)
	return me, nil
}

// mean returns the mean of at least one duration.
func mean(times []time.Duration) (sum time.Duration) {
	for _, t := range times {
		sum += t
	}
	return sum / time.Duration(len(times))
}

// rehearse computes microbatches as a step does, and returns the time of each. The very first
// microbatch is not measured: it warms up memory and caches.
func (t trial) rehearse(ctx context.Context) ([]time.Duration, error) {
	p := t.step.plan.step(t.step.state.committed() + 1)
	one := func(k int) (time.Duration, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		before := t.step.own.compute
		// Whole microbatches only: the last microbatch of a pass may be short.
		err := t.step.own.add(t.step.model, p, []int{k % max(1, p.microbatches-1)}, ignore)
		return max(time.Microsecond, t.step.own.compute-before), err
	}
	t.onTrial(p.step)
	warm, err := one(0)
	if err != nil {
		return nil, err
	}
	// Very slow microbatches are measured only once.
	least := trialLeast
	if warm > trialLong {
		least = 1
	}
	t.onTrial(p.step)
	var times []time.Duration
	for begun := time.Now(); len(times) < least || len(times) < trialMicrobatches && time.Since(begun) < trialTime; {
		took, err := one(len(times))
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	return times, nil
}

// onTrial notifies the user that a trial of a step begins.
func (t trial) onTrial(step int64) {
	if t.step.cfg.Hooks.OnTrial != nil {
		t.step.cfg.Hooks.OnTrial(step)
	}
}
