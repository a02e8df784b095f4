package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
	"go.uber.org/goleak"
)

// reader is a model that records which samples it is to prefetch and which samples its calls compute.
type reader struct {
	below    interface{ Model() trainer.Model }
	prefetch func(ctx context.Context) // Prefetch calls this function; nil for none

	mu    sync.Mutex
	named []int   // samples to prefetch, in order
	calls [][]int // samples of each call of Prefetch
	begun []micro
	busy  int // calls of Prefetch under way
	most  int // largest value of busy
	ended int // calls of Prefetch that have returned
}

// micro is a microbatch that a reader has computed.
type micro struct {
	samples []int // empty if a step has begun and nothing was computed
	first   bool  // first microbatch since the step began, or began again
	step    int64
	before  int // length of named at that time
}

// Prefetch records the call.
func (r *reader) Prefetch(ctx context.Context, samples []int) {
	r.mu.Lock()
	r.named = append(r.named, samples...)
	r.calls = append(r.calls, slices.Clone(samples))
	r.busy++
	r.most = max(r.most, r.busy)
	r.mu.Unlock()
	if r.prefetch != nil {
		r.prefetch(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	r.ended++
}

// Model returns a model that records calls in the reader.
func (r *reader) Model() trainer.Model {
	model := r.below.Model()
	gradient := model.Gradient
	model.Prefetch = r.Prefetch
	model.Gradient = func(b *trainer.Batch) (float64, error) {
		r.take(b.Samples())
		return gradient(b)
	}
	return model
}

// take records a microbatch.
func (r *reader) take(samples []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := &r.begun[len(r.begun)-1]
	if last.samples != nil {
		r.begun = append(r.begun, micro{step: last.step})
		last = &r.begun[len(r.begun)-1]
	}
	last.samples, last.before = slices.Clone(samples), len(r.named)
}

// begin records that a step begins, or begins again.
func (r *reader) begin(step int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, micro{step: step, first: true})
}

// reading makes each model of an arena a reader. It returns the readers in the order of ranks; the readers of members that join
// come last.
func reading(a *arena, change func(x *actor, m *reader)) *[]*reader {
	readers := new([]*reader)
	a.adjust = func(x *actor) {
		m := &reader{below: x.model}
		*readers = append(*readers, m)
		x.trained, x.cfg.Hooks.OnBegin = m, m.begin
		if change != nil {
			change(x, m)
		}
	}
	return readers
}

// given lists the samples of all microbatches.
func (r *reader) given() []int {
	var all []int
	for _, b := range r.begun {
		all = append(all, b.samples...)
	}
	return all
}

// While shares stay the same, the prefetched samples are the samples that are computed, in the same order, each once. Only the
// first microbatch of the job is not prefetched. What follows a short step is named before it, so there are fewer calls than steps.
func TestPrefetchIsWhatComes(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, n := range []int{1, 2, 3, 4} {
		cfg := manyMicrobatches(13, false)
		synctest.Test(t, func(t *testing.T) {
			a := newArena(n, cfg)
			readers := reading(a, nil)
			a.play(t)
			a.check(t, "steady")
			for rank, m := range *readers {
				want := m.given()[cfg.Microbatch:]
				if !slices.Equal(m.named, want) || m.most != 1 || len(m.calls) != 10 {
					t.Errorf("%d ranks: rank %d: %d samples named in %d calls, %d at a time; %d computed",
						n, rank, len(m.named), len(m.calls), m.most, len(want))
				}
			}
		})
	}
}

// covered checks that every microbatch that a reader computed was prefetched before. The first microbatch of a try is exempt.
func (r *reader) covered(t *testing.T, about string) {
	t.Helper()
	for _, b := range r.begun {
		if b.first {
			continue
		}
		for _, s := range b.samples {
			if !slices.Contains(r.named[:b.before], s) {
				t.Errorf("%s: sample %d of step %d was not named before it came", about, s, b.step)
				return
			}
		}
	}
}

// When shares change, samples that are new in a share are prefetched in time. Few samples are prefetched and not computed, and no
// sample is prefetched twice.
func TestPrefetchFollowsShares(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := manyMicrobatches(4, false) // less than a pass: each prefetched sample belongs to one step
		cfg.Samples = 40 * cfg.GlobalBatch
		cfg.Steps = 30
		a := newArena(3, cfg)
		readers := reading(a, func(x *actor, m *reader) {
			x.cfg.Hooks.OnBegin = func(step int64) {
				m.begin(step)
				if x.self.Index == 0 && step == 10 {
					x.model.pace = 5 * time.Millisecond
				}
			}
		})
		a.play(t)
		a.check(t, "a slow member")
		if before, after := a.sharesOf(9), a.sharesOf(30); after[0] >= before[0]/2 {
			t.Fatalf("shares %v, and %v when rank 0 is slow", before, after)
		}
		for rank, m := range *readers {
			m.covered(t, fmt.Sprint("rank ", rank))
			computed := m.given()
			surplus := 0
			for i, s := range m.named {
				if slices.Contains(m.named[:i], s) {
					t.Fatalf("rank %d: sample %d was named twice", rank, s)
				}
				if !slices.Contains(computed, s) {
					surplus++
				}
			}
			// The change of shares makes about half a share superfluous.
			if share := cfg.GlobalBatch / 3; surplus > 2*share {
				t.Errorf("rank %d: %d samples were named and not computed, a share is %d", rank, surplus, share)
			}
		}
	})
}

// When a member dies, the survivors prefetch the samples that they take over from it. They prefetch no sample twice, and so none that
// they have computed.
func TestPrefetchAfterADeath(t *testing.T) {
	defer goleak.VerifyNone(t)
	for k := int64(1); k < 200; k += 19 {
		synctest.Test(t, func(t *testing.T) {
			cfg := manyMicrobatches(4, false)
			about := fmt.Sprintf("rank 1 killed at message %d", k)
			a := newArena(3, cfg)
			readers := reading(a, func(x *actor, _ *reader) {
				if x.self.Index == 1 {
					x.killAt.Store(k)
				}
			})
			a.play(t)
			a.check(t, about)
			for rank, m := range *readers {
				if rank == 1 {
					continue
				}
				m.covered(t, fmt.Sprintf("%s: rank %d", about, rank))
				named := slices.Sorted(slices.Values(m.named))
				if twice := len(named) - len(slices.Compact(named)); twice > 0 {
					t.Errorf("%s: rank %d: %d samples named twice", about, rank, twice)
				}
			}
		})
	}
}

// A call of Prefetch that does not return delays no step. There is no second call meanwhile. Run ends only when the call returns.
func TestPrefetchHoldsUpNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, manyMicrobatches(6, false))
		readers := reading(a, func(_ *actor, m *reader) {
			m.prefetch = func(ctx context.Context) { <-ctx.Done() }
		})
		a.play(t)
		a.check(t, "stuck")
		a.checkTries(t, "stuck")
		for rank, m := range *readers {
			if len(m.calls) != 1 || m.ended != 1 {
				t.Errorf("rank %d: %d calls, %d have come back", rank, len(m.calls), m.ended)
			}
		}
	})
}

// After a call of Prefetch that lasts longer than a step, the next call has the samples that are needed by then. Steps that are
// over are left out.
func TestPrefetchCatchesUp(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, manyMicrobatches(4, false))
		readers := reading(a, func(_ *actor, m *reader) {
			m.prefetch = func(context.Context) { <-time.After(150 * time.Millisecond) } // longer than two steps
		})
		a.play(t)
		a.check(t, "slow disk")
		m := (*readers)[0]
		// A step takes 64 ms. The first call has samples of steps 1 and 2. The second call begins in step 3, and has samples of
		// steps 3 and 4.
		all := m.given()
		want := [][]int{all[4:512], all[516:1024]}
		if len(m.calls) != 2 || !slices.Equal(m.calls[0], want[0]) || !slices.Equal(m.calls[1], want[1]) || m.most != 1 {
			t.Errorf("%d calls, %d at a time: %v\nwant %v", len(m.calls), m.most, m.calls, want)
		}
	})
}

// Run waits for a call of Prefetch under way, also when Run ends with an error.
func TestPrefetchEndsWithTheRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	boom := errors.New("boom")
	runGroups(t, 1, &log{}, func(ctx context.Context, g *elastic.Group) error {
		c := newCounter(3)
		m := &reader{below: c, prefetch: func(ctx context.Context) {
			<-ctx.Done()
			<-time.After(time.Second) // simulates a slow system call
		}}
		c.hook = func([][]float32, []int) error {
			<-time.After(time.Millisecond)
			if len(c.seen) > 20 {
				return boom
			}
			return nil
		}
		cfg := counting(1)
		cfg.Hooks.OnBegin = m.begin
		if err := trainer.Run(ctx, g, m.Model(), cfg); !errors.Is(err, boom) || len(m.calls) != 1 || m.ended != 1 {
			t.Errorf("error %v; %d calls, %d have come back", err, len(m.calls), m.ended)
		}
		return nil
	})
}
