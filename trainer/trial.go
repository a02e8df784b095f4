package trainer

import (
	"context"
	"fmt"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

const (
	// trialTime is how long a trial computes, at least, and trialMicrobatches how many it
	// computes at most.
	trialTime         = 100 * time.Millisecond
	trialMicrobatches = 15
	// trialLeast is how many microbatches a trial needs to tell what the first of a step
	// takes longer than others; where they take long, it does without.
	trialLeast = 3
	trialLong  = 2 * time.Second
)

// trial measures how fast this peer is before it takes part.
type trial struct {
	step   *openStep
	always bool // it is let in however fast it is
}

// Trial computes some microbatches of the open step for nothing, and returns how fast
// that was. It implements elastic.Trier. This peer has contributed nothing to the step,
// as it is in no session; the contribution is empty again afterwards, so neither the
// ledger nor the parameters know of the trial.
func (t trial) Trial(ctx context.Context) (elastic.Candidate, error) {
	me := elastic.Candidate{Forced: t.always, Most: t.step.balance.most}
	if me.Forced || t.step.state.void || t.step.microbatches() == 0 {
		return me, nil // nobody asks
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
	// The mean, not the median: a peer that stops now and then is slower by that, and for
	// one that is thought slower than it is there is another trial.
	pace := max(time.Microsecond, mean(times))
	// A little more is what caches and timers make of a beginning.
	if first > pace+pace/2 {
		me.Fixed = first - pace
	}
	me.Speed = loadbal.Speed(1, pace.Microseconds())
	t.step.balance.assume(me.Speed)
	return me, nil
}

func mean(times []time.Duration) (sum time.Duration) {
	for _, t := range times {
		sum += t
	}
	return sum / time.Duration(len(times))
}

// rehearse computes microbatches as a step does, and returns what each took. The first of
// all is not measured: it brings memory and caches into the state in which they stay.
func (t trial) rehearse(ctx context.Context) ([]time.Duration, error) {
	p := t.step.plan.step(t.step.state.committed() + 1)
	one := func(k int) (time.Duration, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		begun := time.Now()
		// Whole microbatches only: the last one of a pass may be short.
		err := t.step.own.add(t.step.model, p, []int{k % max(1, p.microbatches-1)}, ignore)
		return max(time.Microsecond, time.Since(begun)), err
	}
	t.onTrial(p.step)
	warm, err := one(0)
	if err != nil {
		return nil, err
	}
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

// onTrial says that a rehearsal of a step begins.
func (t trial) onTrial(step int64) {
	if t.step.cfg.OnTrial != nil {
		t.step.cfg.OnTrial(step)
	}
}
