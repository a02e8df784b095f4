package trainer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
)

// timed is a ramp whose microbatches take a given time.
type timed struct {
	ramp
	pace, first time.Duration
	fresh       bool // the next microbatch is the first of a step
	computed    int
	err         error
}

func (t *timed) Accumulate(grad [][]float32, samples []int, done func(int)) (float64, error) {
	t.computed++
	<-time.After(t.pace)
	if t.fresh {
		<-time.After(t.first)
	}
	t.fresh = false
	if t.err != nil {
		return 0, t.err
	}
	return t.ramp.Accumulate(grad, samples, done)
}

// tried returns an open step, whose trial computes with a timed model, and this model.
func tried(t *testing.T, m timed, change func(*Config)) (*openStep, *timed) {
	t.Helper()
	m.ramp = ramp{paramsOf(2, 3, 17)}
	r := alone(t, &m, func(c *Config) {
		c.Hooks.OnTrial = func(int64) { m.fresh = true }
		if change != nil {
			change(c)
		}
	})
	return r, &m
}

func TestTrialMeasures(t *testing.T) {
	for name, c := range map[string]struct {
		pace, first  time.Duration
		want         elastic.Candidate
		computed     int
		microseconds int64
	}{
		"as any":            {20 * time.Millisecond, 0, elastic.Candidate{}, 6, 20_000},
		"with a fixed part": {20 * time.Millisecond, 50 * time.Millisecond, elastic.Candidate{Fixed: 50 * time.Millisecond}, 4, 20_000},
		"quick":             {10 * time.Microsecond, 0, elastic.Candidate{}, 16, 10},
		"very slow":         {time.Minute, 0, elastic.Candidate{}, 2, 60_000_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, m := tried(t, timed{pace: c.pace, first: c.first}, nil)
			c.want.Speed = loadbal.Speed(1, c.microseconds)
			got, err := (trial{step: r}).Trial(t.Context())
			if err != nil || got != c.want || m.computed != c.computed {
				t.Errorf("%s: %+v after %d microbatches, %v; want %+v after %d", name, got, m.computed, err, c.want, c.computed)
			}
			if r.balance.speed() != c.want.Speed {
				t.Errorf("%s: the first session gets the speed %d", name, r.balance.speed())
			}
		})
	}
}

// A trial changes neither the state nor the next step nor its reports.
func TestTrialLeavesNoTrace(t *testing.T) {
	for _, exactly := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			with, _ := tried(t, timed{}, func(c *Config) { c.Gradients.Exact = exactly })
			without, _ := tried(t, timed{}, func(c *Config) { c.Gradients.Exact = exactly })
			for range 2 {
				before := saved(t, with.state)
				if _, err := (trial{step: with}).Trial(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(saved(t, with.state), before) || with.own.samples != 0 || with.own.held.Len() != 0 || with.own.compute != 0 {
					t.Errorf("exact %t: something of the trial is left", exactly)
				}
				with.solo(t)
				without.solo(t)
				if with.work.recomputed != 0 || !bytes.Equal(saved(t, with.state), saved(t, without.state)) || !slices.Equal(updated(t, with.state), updated(t, without.state)) {
					t.Errorf("exact %t: the step after a trial is another, or %d microbatches count as computed again", exactly, with.work.recomputed)
				}
			}
		})
	}
}

func TestTrialEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := tried(t, timed{pace: time.Second}, func(c *Config) { c.Balancing.MaxShare = 7 })
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := (trial{step: r}).Trial(ctx); !errors.Is(err, context.DeadlineExceeded) || m.computed != 2 {
			t.Errorf("%v after %d microbatches", err, m.computed)
		}
		if got, err := (trial{step: r}).Trial(t.Context()); got.Forced || got.Most != 7 || got.Speed == 0 || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
		m.computed = 0
		if got, err := (trial{r, true}).Trial(t.Context()); !got.Forced || got.Speed != 0 || m.computed != 0 || err != nil {
			t.Errorf("%+v after %d microbatches, %v", got, m.computed, err)
		}
		m.err = ErrOutOfMemory
		if _, err := (trial{step: r}).Trial(t.Context()); !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("no memory: %v", err)
		}
		r.state.last.Step = r.plan.steps
		if got, err := (trial{step: r}).Trial(t.Context()); got.Speed != 0 || err != nil {
			t.Errorf("after the last step: %+v, %v", got, err)
		}
	})
}
