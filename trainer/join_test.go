package trainer_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/trainer"
)

// joined plays a job with 64 microbatches a step and four members that take a millisecond per microbatch. In step 6 another
// peer arrives, which takes the time pace for a microbatch. If kill is above 0, it is the step in which rank 3 dies.
func joined(t *testing.T, pace time.Duration, kill int64) (a *arena, sha string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := manyMicrobatches(120, true)
		cfg.Samples = 256 * 200 // no short steps
		a = newArena(4, cfg)
		var begun atomic.Bool
		a.adjust = func(x *actor) {
			if x.self.Index == 4 {
				x.model.pace = pace
			}
			x.cfg.Hooks.OnBegin = func(step int64) {
				if step == 6 && begun.CompareAndSwap(false, true) {
					a.start(elastic.Member{ID: "newcomer", Index: 4}, nil)
				}
				if step == kill && x.self.Index == 3 {
					x.kill()
				}
			}
		}
		a.play(t)
		sha = a.check(t, fmt.Sprint("a newcomer of pace ", pace))
	})
	return a, sha
}

// parkings returns the logged reasons why peers were parked.
func (a *arena) parkings() (reasons []string) {
	for _, e := range a.events.events {
		if p, ok := e.Body.(event.Parked); ok {
			reasons = append(reasons, p.Reason)
		}
	}
	return reasons
}

// stepTimes returns the times that rank 0 has measured for the steps with n members.
func (a *arena) stepTimes(n int) (times []time.Duration) {
	for _, s := range a.actors[0].steps {
		if s.Peers == n {
			times = append(times, s.Total)
		}
	}
	return times
}

// A peer that shortens steps is admitted, and begins with a share that suits its speed. From its first step on, no step is longer
// than before.
func TestAPeerThatHelpsIsLetIn(t *testing.T) {
	for _, pace := range []time.Duration{time.Millisecond, 3 * time.Millisecond} {
		a, _ := joined(t, pace, 0)
		before, after := a.stepTimes(4), a.stepTimes(5)
		if len(a.parkings()) > 0 || len(after) < 50 {
			t.Fatalf("pace %v: parked for %q, %d steps with the newcomer", pace, a.parkings(), len(after))
		}
		t.Logf("pace %v: steps of %v before, %v after", pace, before[len(before)-1], after[len(after)-1])
		if most := slices.Max(after); most >= before[len(before)-1] {
			t.Errorf("pace %v: a step of %v with the newcomer, %v before", pace, most, before[len(before)-1])
		}
	}
}

// A peer that is ten times slower than the four members is parked: if it computed one of the 64 microbatches, some member would
// still have 16. When a member dies, one of the three others has 22 microbatches. Then the peer is admitted, because it can compute
// one of these 22. The weights are the same as without the peer.
func TestAPeerThatDoesNotHelpIsParked(t *testing.T) {
	never, want := joined(t, 10*time.Millisecond, 0)
	reasons := never.parkings()
	if len(reasons) == 0 || !strings.Contains(reasons[0], "a step would take 16.0 ms with the newcomer and takes 16.0 ms without") ||
		!strings.Contains(reasons[0], "samples/s: the newcomer 400, the 4 members 16000") {
		t.Errorf("parked for %q", reasons)
	}
	if x := never.actors[4]; len(x.steps) > 0 || x.result == nil || len(never.stepTimes(5)) > 0 {
		t.Errorf("the parked peer reported %d steps, result %v, error %v", len(x.steps), x.result, x.err)
	}
	later, sha := joined(t, 10*time.Millisecond, 40)
	if sha != want {
		t.Errorf("weights %s, want %s", sha, want)
	}
	three, four := later.stepTimes(3), later.stepTimes(4)
	if x := later.actors[4]; len(later.parkings()) != 1 || len(x.steps) < 10 || x.result == nil || x.result.Peers != 4 {
		t.Fatalf("parked for %q; then it did %d steps, %v", later.parkings(), len(x.steps), x.result)
	}
	if most := slices.Max(four[40:]); most > three[len(three)-1] {
		t.Errorf("a step of %v with the newcomer, %v before", most, three[len(three)-1])
	}
}

// A newcomer with AdmitAlways is admitted, although it makes steps longer.
func TestAdmitAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := manyMicrobatches(60, true)
		a := newArena(2, cfg)
		var begun atomic.Bool
		a.adjust = func(x *actor) {
			if x.self.Index == 2 {
				x.model.pace, x.cfg.Balancing.Admit = 100*time.Millisecond, trainer.AdmitAlways
			}
			x.cfg.Hooks.OnBegin = func(step int64) {
				if step == 6 && begun.CompareAndSwap(false, true) {
					a.start(elastic.Member{ID: "newcomer", Index: 2}, nil)
				}
			}
		}
		a.play(t)
		a.check(t, "a forced join")
		if len(a.parkings()) > 0 || len(a.actors[2].steps) < 10 {
			t.Errorf("parked for %q, %d steps", a.parkings(), len(a.actors[2].steps))
		}
	})
}
