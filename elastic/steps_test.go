package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

// ledger is the State that these tests train. It sums up the count and the squared numbers of all
// samples, so a sample that is missing or counted twice is detected.
type ledger struct {
	step int64
	sums []int64
}

func newLedger() *ledger { return &ledger{sums: make([]int64, 2)} }

func (l *ledger) state() elastic.State { return elastic.Vectors(&l.step, &l.sums) }

// part returns the contribution of the samples lo to hi of a step.
func (l *ledger) part(lo, hi int) []int64 {
	sum := make([]int64, 2)
	for i := lo; i < hi; i++ {
		x := l.step*samplesOfStep + int64(i)
		sum[0], sum[1] = sum[0]+1, sum[1]+x*x
	}
	return sum
}

func (l *ledger) commit(sum []int64) {
	for k, x := range sum {
		l.sums[k] += x
	}
	l.step++
}

// undisturbed returns the ledger of a single undisturbed peer after the given steps.
func undisturbed(steps int64) *ledger {
	l := newLedger()
	for l.step < steps {
		l.commit(l.part(0, samplesOfStep))
	}
	return l
}

const (
	samplesOfStep = 48
	stepTime      = 10 * time.Millisecond // time of computing in a turn
)

// wait waits for the duration d, in place of computing.
func wait(d time.Duration) { <-time.After(d) }

// attempt is the body of a correct loop.
func (l *ledger) attempt(ctx context.Context, t *elastic.Turn) {
	lo, hi := t.Part(samplesOfStep)
	sum := l.part(lo, hi)
	wait(stepTime)
	if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[int64]); err == nil {
		l.commit(sum)
	}
}

// ending is the result of one peer of a run.
type ending struct {
	ledger *ledger
	err    error
	took   time.Duration // since the first turn of the first peer
}

// run is a job in virtual time.
type run struct {
	*cluster.Job
	sink  record
	mu    sync.Mutex
	ended map[int]ending
}

// startLoops starts n peers. The function loop is their program and returns the result of a peer.
func startLoops(t *testing.T, n int, seed uint64, loop func(ctx context.Context, g *elastic.Group, l *ledger) error) *run {
	r := &run{ended: make(map[int]ending)}
	network := simnet.New(simnet.Config{Seed: seed, Link: simnet.Link{Delay: time.Millisecond, Lag: time.Millisecond}})
	begun := time.Now()
	r.Job = cluster.Start(t, n, network, func(ctx context.Context, g *elastic.Group) error {
		l := newLedger()
		err := loop(ctx, g, l)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended[g.Self().Index] = ending{l, err, time.Since(begun)}
		return nil
	}, &r.sink)
	return r
}

// finish waits for all peers, and returns the results of the given indices.
func (r *run) finish(t *testing.T, indices ...int) (out []ending) {
	t.Helper()
	r.Wait()
	for _, i := range indices {
		m, ok := r.ended[i]
		if !ok {
			t.Fatalf("peer %d has not ended", i)
		}
		out = append(out, m)
	}
	return out
}

// wantLeave checks that the peer with an index has logged once that it left, after a step, and that
// all who know a reason have logged this one.
func (r *run) wantLeave(t *testing.T, index int, step int64, reason string) {
	t.Helper()
	all, who := r.sink.of("leave"), ""
	for _, e := range all {
		if b := e.Body.(event.Leave); e.Index == index && e.Peer == b.Who {
			if who != "" || b.Reason == "" || e.Step != step {
				t.Errorf("peer %d logs that it has left after step %d (%s), want step %d, once", index, e.Step, b.Reason, step)
			}
			who = b.Who
		}
	}
	if who == "" {
		t.Errorf("peer %d has not logged that it has left", index)
	}
	for _, e := range all {
		if b := e.Body.(event.Leave); b.Who == who && b.Reason != reason && b.Reason != "" {
			t.Errorf("peer %d logs that peer %d has left (%s), want (%s)", e.Index, index, b.Reason, reason)
		}
	}
}

// wantLedger checks that all ended without an error, with the ledger of an undisturbed peer.
func wantLedger(t *testing.T, steps int64, all []ending) {
	t.Helper()
	want := undisturbed(steps)
	for i, m := range all {
		if m.err != nil || m.ledger.step != want.step || !slices.Equal(m.ledger.sums, want.sums) {
			t.Errorf("peer %d: %v, step %d, %v; want %d, %v", i, m.err, m.ledger.step, m.ledger.sums, want.step, want.sums)
		}
	}
}

// straight returns a correct loop.
func straight(steps int64, options ...elastic.Option) func(context.Context, *elastic.Group, *ledger) error {
	return func(ctx context.Context, g *elastic.Group, l *ledger) error {
		for t := range g.Steps(ctx, l.state(), steps, options...) {
			l.attempt(ctx, t)
		}
		return g.Err()
	}
}

// Steps ends at every peer with the sums of a single undisturbed peer, and the end of the job is
// logged.
func TestSteps(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			r := startLoops(t, n, 1, straight(20))
			indices := make([]int, n)
			for i := range indices {
				indices[i] = i
			}
			wantLedger(t, 20, r.finish(t, indices...))
			dones := r.sink.of("done")
			if len(dones) != n {
				t.Fatalf("n=%d: %d done events", n, len(dones))
			}
			for _, e := range dones {
				if d := e.Body.(event.Done); d.Steps != 20 || d.Peers != n || d.SHA256 != dones[0].Body.(event.Done).SHA256 {
					t.Errorf("n=%d: %+v", n, d)
				}
			}
		})
	}
}

// Peers die, leave and join at any time: no sample is lost or counted twice, and all peers that are
// present at the end agree.
func TestStepsChurn(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const steps = 200
				groups := make(chan *elastic.Group, 8)
				r := startLoops(t, 5, seed, func(ctx context.Context, g *elastic.Group, l *ledger) error {
					if g.Self().Index == 4 {
						groups <- g
					}
					return straight(steps)(ctx, g, l)
				})
				rng := rand.New(rand.NewPCG(seed, 0))
				next := func() { wait(time.Duration(200_000+rng.IntN(150_000)) * time.Microsecond) }
				victims := rng.Perm(4)
				next()
				r.Kill(victims[0])
				next()
				late := r.Join()
				next()
				(<-groups).Leave()
				next()
				r.Kill(victims[1])
				all := r.finish(t, victims[2], victims[3], late)
				wantLedger(t, steps, all)
				left := r.ended[4]
				if want := fmt.Sprintf("after step %d of %d: no further view: left as asked", left.ledger.step, steps); left.ledger.step >= steps ||
					!errors.Is(left.err, elastic.ErrLeft) || !strings.HasSuffix(left.err.Error(), want) {
					t.Errorf("the peer that left at step %d: %v", left.ledger.step, left.err)
				}
				r.wantLeave(t, 4, left.ledger.step, "asked")
			})
		})
	}
}

// A peer dies while it sends its k-th message, for every k in a few whole turns and their
// boundaries.
func TestStepsKillAtMessage(t *testing.T) {
	for k := int64(1); k <= 40; k++ {
		synctest.Test(t, func(t *testing.T) {
			var sent atomic.Int64
			var r *run
			ready := make(chan struct{})
			r = startLoops(t, 3, uint64(k), func(ctx context.Context, g *elastic.Group, l *ledger) error {
				<-ready
				return straight(30)(ctx, g, l)
			})
			r.Network.KillWhen(func(m simnet.Message) bool {
				if m.Plane != simnet.Data || m.From != "member-1" || sent.Load() == 0 && m.Envelope.Call.Count != 2 {
					return false
				}
				if sent.Add(1) != k {
					return false
				}
				r.Kill(1)
				return true
			})
			close(ready)
			wantLedger(t, 30, r.finish(t, 0, 2))
		})
	}
}

// If one peer stops the loop, and another dies at any of its messages after the last step, all
// others end at the same step.
func TestStop(t *testing.T) {
	for victim := range 2 {
		for k := int64(0); k <= 12; k++ {
			synctest.Test(t, func(t *testing.T) { stopAndKill(t, victim, k) })
		}
	}
}

// Peer 2 stops the loop with step 7. stopAndKill kills the victim when it sends its k-th message
// after it has committed that step; k = 0 kills nobody.
func stopAndKill(t *testing.T, victim int, k int64) {
	const stop = 7
	var sent atomic.Int64
	ready := make(chan struct{})
	r := startLoops(t, 3, uint64(k), func(ctx context.Context, g *elastic.Group, l *ledger) error {
		<-ready
		for t := range g.Steps(ctx, l.state(), 30) {
			l.attempt(ctx, t)
			if g.Self().Index == 2 && l.step >= stop {
				t.Stop()
			}
			if g.Self().Index == victim && l.step == stop {
				sent.CompareAndSwap(0, 1)
			}
		}
		return g.Err()
	})
	r.Network.KillWhen(func(m simnet.Message) bool {
		if k == 0 || m.Plane != simnet.Data || m.From != elastic.ID(fmt.Sprint("member-", victim)) || sent.Load() == 0 || sent.Add(1) != k+1 {
			return false
		}
		r.Kill(victim)
		return true
	})
	close(ready)
	all := r.finish(t, 1-victim, 2)
	wantLedger(t, all[0].ledger.step, all)
	if step := all[0].ledger.step; step != stop && step != stop+1 { // the peer that stops the loop may have had to try the step again
		t.Errorf("victim %d, k=%d: stopped at step %d", victim, k, step)
	}
}

// A later loop continues where the earlier loop ended, in the same group, even if the earlier loop
// was stopped. Peers may join during the later loop; their first loop ends at once.
func TestSecondLoop(t *testing.T) {
	for _, stop := range []int64{0, 30} {
		for seed := range uint64(5) {
			synctest.Test(t, func(t *testing.T) {
				turns := make(map[int]int) // turns of the first loop, by index of the peer
				var mu sync.Mutex
				r := startLoops(t, 3, seed, func(ctx context.Context, g *elastic.Group, l *ledger) error {
					for t := range g.Steps(ctx, l.state(), 60) {
						mu.Lock()
						turns[g.Self().Index]++
						mu.Unlock()
						l.attempt(ctx, t)
						if l.step == stop {
							t.Stop()
						}
					}
					if err := g.Err(); err != nil {
						return err
					}
					return straight(160)(ctx, g, l)
				})
				wait(time.Duration(900+seed*50) * time.Millisecond)
				late := r.Join()
				wait(500 * time.Millisecond)
				r.Kill(1)
				wantLedger(t, 160, r.finish(t, 0, 2, late))
				if n := len(r.sink.of("done")); n != 3 {
					t.Errorf("%d done events", n)
				}
			})
		}
	}
}

// A later loop needs the options of the first, and a state that is not behind.
func TestWrongSecondLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 1, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			if err := straight(3)(ctx, g, l); err != nil {
				return err
			}
			if err := straight(5)(ctx, g, newLedger()); err == nil || !strings.Contains(err.Error(), "the committed state") {
				t.Errorf("a state at step 0: %v", err)
			}
			if err := straight(5, elastic.Equal)(ctx, g, l); err == nil || !strings.Contains(err.Error(), "balance") {
				t.Errorf("another option: %v", err)
			}
			return nil
		})
		r.finish(t, 0)
	})
}

// Peers that begin with different states get the state of the lowest rank, and log it.
func TestForgottenSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			l.sums[0] = int64(g.Self().Index) // each peer begins with another number
			return straight(10)(ctx, g, l)
		})
		wantLedger(t, 10, r.finish(t, 0, 1, 2))
		all := r.sink.of("resync")
		if len(all) != 2 || !all[0].Body.(event.Resync).Began || !all[1].Body.(event.Resync).Began {
			t.Errorf("resync events %+v", all)
		}
	})
}

// A long evaluation at one peer does not put it out: the body counts as busy.
func TestLongEvaluation(t *testing.T) {
	for _, say := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
				for t := range g.Steps(ctx, l.state(), 5) {
					l.attempt(ctx, t)
					if t.Rank != 0 || l.step != 2 {
						continue
					}
					pause := 40 * time.Second
					if say {
						defer t.Busy("evaluating")()
						pause = 20 * time.Minute
					}
					wait(pause)
				}
				return g.Err()
			})
			all := r.finish(t, 0, 1, 2)
			wantLedger(t, 5, all)
			for _, e := range r.sink.of("leave") {
				if e.Body.(event.Leave).Reason == "stalled" {
					t.Errorf("a peer was put out: %+v", e)
				}
			}
			want := map[bool]string{false: "in the body of its loop", true: "evaluating"}[say]
			if stalls := r.sink.of("stall"); len(stalls) == 0 || stalls[0].Body.(event.Stall).Phase != want {
				t.Errorf("stalls %+v, want %q", stalls, want)
			}
		})
	}
}

// If a body does not return, the others wait for some minutes. Then they ask its peer to step down,
// and go on without it.
func TestBodyNeverComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			for t := range g.Steps(ctx, l.state(), 5) {
				if g.Self().Index == 1 && l.step == 2 {
					wait(time.Hour)
				}
				l.attempt(ctx, t)
			}
			return g.Err()
		})
		all := r.finish(t, 0, 1, 2)
		wantLedger(t, 5, []ending{all[0], all[2]})
		if !errors.Is(all[1].err, elastic.ErrFenced) || all[0].took > 10*time.Minute {
			t.Errorf("the one that hung: %v; the others took %v", all[1].err, all[0].took)
		}
	})
}

// A peer that calls Turn.Fail ends with the given error, and the others go on without it.
func TestFail(t *testing.T) {
	for _, leave := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			broken := errors.New("disk on fire")
			r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
				for t := range g.Steps(ctx, l.state(), 20) {
					if g.Self().Index == 1 && l.step == 5 {
						t.Fail(broken)
						if leave {
							break
						}
						continue
					}
					l.attempt(ctx, t)
				}
				return g.Err()
			})
			all := r.finish(t, 0, 1, 2)
			wantLedger(t, 20, []ending{all[0], all[2]})
			if !errors.Is(all[1].err, broken) || all[1].ledger.step != 5 {
				t.Errorf("%v at step %d", all[1].err, all[1].ledger.step)
			}
			r.wantLeave(t, 1, 5, "failed")
			for _, m := range all {
				if m.took > 5*time.Second {
					t.Errorf("took %v", m.took)
				}
			}
		})
	}
}

// When a peer's context ends, its loop ends with the cause of the context, and the others go on.
func TestStepsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for t := range g.Steps(ctx, l.state(), 20) {
				if g.Self().Index == 1 && l.step == 5 {
					cancel()
				}
				l.attempt(ctx, t)
			}
			return g.Err()
		})
		all := r.finish(t, 0, 1, 2)
		wantLedger(t, 20, []ending{all[0], all[2]})
		if !errors.Is(all[1].err, context.Canceled) {
			t.Errorf("%v", all[1].err)
		}
	})
}
