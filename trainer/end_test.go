package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
)

// scored scores a test set of 60 samples. A third of the answers are right.
func scored(_ context.Context, part, parts int) (trainer.Score, error) {
	var s trainer.Score
	for i := 60 * part / parts; i < 60*(part+1)/parts; i++ {
		s.Samples++
		s.Loss += 0.5
		if i%3 == 0 {
			s.Correct++
		}
	}
	return s, nil
}

// If a peer dies in the evaluation, the others evaluate again. Each of them reports the end of the job once.
func TestKillInTheEvaluation(t *testing.T) {
	cfg := churning(3, false)
	for victim := range 3 {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, cfg)
			calls := 0
			a.adjust = func(x *actor) {
				x.cfg.Evaluate = func(ctx context.Context, part, parts int) (trainer.Score, error) {
					if x.self.Index == victim {
						x.kill()
					}
					if x.self.Index == (victim+1)%3 {
						calls++
					}
					return scored(ctx, part, parts)
				}
			}
			a.play(t)
			a.check(t, "killed in the evaluation")
			for _, x := range a.actors {
				done := of[event.Done](&a.events, x.self.Index)
				if x.killed.Load() {
					continue
				}
				if len(done) != 1 || *x.result.Score != (trainer.Score{Samples: 60, Correct: 20, Loss: 30}) || x.result.Peers != 3 {
					t.Errorf("victim %d: %s: %d done events, result %+v, score %+v", victim, x.self.ID, len(done), x.result, x.result.Score)
				}
			}
			// The survivor evaluates only once if the victim dies before the survivor begins.
			if calls != 1 && calls != 2 {
				t.Errorf("victim %d: a survivor evaluated %d times", victim, calls)
			}
		})
	}
}

// After a peer has committed the last step, it finishes the job, even if all others die and there is no quorum for another
// session.
func TestTheLastStepIsEnough(t *testing.T) {
	cfg := churning(3, false)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, cfg)
		var parts []string
		a.adjust = func(x *actor) {
			x.cfg.Evaluate = func(ctx context.Context, part, n int) (trainer.Score, error) {
				if x.self.Index > 0 {
					x.kill()
				} else {
					parts = append(parts, fmt.Sprint(part, " of ", n))
				}
				return scored(ctx, part, n)
			}
		}
		a.play(t)
		a.check(t, "two of three killed in the evaluation")
		x := a.actors[0]
		if len(parts) == 0 || parts[len(parts)-1] != "0 of 1" || x.result.Score.Samples != 60 || x.result.Peers != 3 {
			t.Errorf("evaluated %v, result %+v", parts, x.result)
		}
	})
}

// The others die between two commit records. The first record has committed the last step. The second record, in which all
// ranks would declare this step committed, is never complete. The survivor has the result, but does not report the step. If the
// others were only cut off, they might commit the step with other shares, and the logs would count it twice.
func TestTheLastStepIsNotReportedAlone(t *testing.T) {
	cfg := churning(3, true)
	want := alone(t, cfg)
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, cfg)
		a.adjust = func(x *actor) {
			report := x.cfg.Hooks.OnStep
			x.cfg.Hooks.OnStep = func(r trainer.StepReport) {
				report(r)
				if x.self.Index == 1 && r.Step == 2 { // this peer has the complete commit record of step 3
					a.actors[0].kill()
					a.actors[2].kill()
				}
			}
		}
		a.play(t)
		x := a.actors[1]
		if x.err != nil || x.result == nil || x.result.SHA256 != want {
			t.Fatalf("error %v, result %v, want weights %s", x.err, x.result, want)
		}
		for _, x := range a.actors {
			if len(x.steps) > 2 {
				t.Errorf("%s reports %d steps, and the third was never stable", x.self.ID, len(x.steps))
			}
		}
	})
}

// Run returns the error of the evaluation, even at a peer that is alone.
func TestAFailedEvaluationAlone(t *testing.T) {
	broken := errors.New("no test set")
	synctest.Test(t, func(t *testing.T) {
		a := newArena(2, churning(2, false))
		a.adjust = func(x *actor) {
			x.cfg.Evaluate = func(ctx context.Context, part, n int) (trainer.Score, error) {
				if x.self.Index == 1 {
					x.kill()
				}
				if n == 1 {
					return trainer.Score{}, broken
				}
				return scored(ctx, part, n)
			}
		}
		a.play(t)
		if x := a.actors[0]; !errors.Is(x.err, broken) || x.result != nil {
			t.Errorf("error %v, result %v", x.err, x.result)
		}
	})
}

// Too few peers are left in the middle of a job. The run ends after the configured time, and gives the reason.
func TestQuorumLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, churning(9, false))
		a.adjust = func(x *actor) {
			x.cfg.Hooks.OnBegin = func(step int64) {
				if x.self.Index > 0 && step == 4 {
					x.kill()
				}
			}
		}
		a.play(t)
		// The other peers had received the whole commit record of step 3 when they died. If this peer had not received that
		// record, its last committed step was step 2, and only step 1 was stable.
		if x := a.actors[0]; !errors.Is(x.err, elastic.ErrQuorum) || x.result != nil || len(x.steps) < 1 {
			t.Errorf("error %v after %d steps", x.err, len(x.steps))
		}
	})
}

// In exact mode the result does not depend on the number of peers, or on whether the scale had to be corrected.
func TestExactAtManySizes(t *testing.T) {
	cfg := churning(7, true)
	for _, scale := range []float32{1, 1e-4, 1e6} {
		want, attempts := "", int64(0)
		for _, n := range []int{1, 2, 3, 4, 7} {
			synctest.Test(t, func(t *testing.T) {
				a := newArena(n, cfg)
				a.adjust = func(x *actor) { x.model.scale, x.cfg.Gradients.Clip = scale, 50 }
				a.play(t)
				sha := a.check(t, fmt.Sprint(n, " peers"))
				if want == "" {
					want = sha
				}
				if sha != want {
					t.Errorf("scale %v: %d peers have %s, one has %s", scale, n, sha, want)
				}
				for i, s := range a.actors[0].steps {
					attempts += s.Attempt
					if first := a.actors[n-1].steps[i]; first.Loss != s.Loss || first.Digest != s.Digest {
						t.Errorf("step %d: loss %v and %v", s.Step, s.Loss, first.Loss)
					}
				}
			})
		}
		if (attempts > 0) != (scale != 1) {
			t.Errorf("scale %v: %d further attempts", scale, attempts)
		}
	}
}

// All peers are asked to leave in a step. The last one to leave reports that step, with the parts of all.
func TestAllLeaveInAStep(t *testing.T) {
	for _, at := range []int64{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(3, churning(3, false))
			a.adjust = func(x *actor) {
				x.cfg.Hooks.OnBegin = func(step int64) {
					if step == at {
						x.group.Leave()
						<-time.After(time.Second) // the others agree to it before the step is over
					}
				}
			}
			a.play(t)
			a.cfg.Steps = at
			a.ledger(t, fmt.Sprint("all leave in step ", at))
			for _, x := range a.actors {
				if done := x.err == nil; done != (at == 3) || !done && !errors.Is(x.err, elastic.ErrLeft) {
					t.Errorf("all leave in step %d: %s: %v", at, x.self.ID, x.err)
				}
			}
		})
	}
}
