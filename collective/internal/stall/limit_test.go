package stall

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// routine drives a limit through a sequence of calls in virtual time.
type routine struct {
	l   Limit
	now time.Duration
}

// call makes one call with one wait, after a pause.
func (r *routine) call(pause, wait time.Duration) {
	r.now += pause
	r.l.Begin(r.now)
	r.now += wait
	r.l.RecordWait(wait, r.now)
	r.l.End(r.now)
}

// The limit adapts to usual waits and pauses, within its bounds.
func TestLimit(t *testing.T) {
	for name, test := range map[string]struct {
		pause, wait time.Duration
		low, high   time.Duration
	}{
		"quick calls":          {10 * time.Millisecond, time.Millisecond, time.Second, time.Second},
		"waits of a second":    {10 * time.Millisecond, time.Second, 2900 * time.Millisecond, 3 * time.Second},
		"waits of a minute":    {0, time.Minute, 100 * time.Second, 3 * time.Minute},
		"pauses of a second":   {time.Second, time.Millisecond, 4 * time.Second, 5 * time.Second},
		"pauses of a half":     {500 * time.Millisecond, time.Millisecond, 2 * time.Second, 2500 * time.Millisecond},
		"nothing between them": {0, 0, time.Second, time.Second},
	} {
		r := new(routine)
		for range 100 {
			r.call(test.pause, test.wait)
		}
		if got := r.l.limit(r.now); got < test.low || got > test.high {
			t.Errorf("%s: %v, want %v to %v", name, got, test.low, test.high)
		}
		if test.high >= maxLimit && !r.l.Judge(maxLimit, r.now).Overdue {
			t.Errorf("%s: a wait of %v is not overdue", name, maxLimit)
		}
	}
}

// One wait of minutes, or one long pause of this rank, raises the limit only a little, so that the
// watchdog still finds stalls.
func TestOneLongWaitRaisesLimitLittle(t *testing.T) {
	for name, long := range map[string]func(r *routine){
		"wait":  func(r *routine) { r.call(0, 5*time.Minute) },
		"pause": func(r *routine) { r.call(5*time.Minute, 0) },
	} {
		r := new(routine)
		for range 100 {
			r.call(100*time.Millisecond, 10*time.Millisecond)
		}
		long(r)
		worst := time.Duration(0)
		for range 400 {
			r.call(100*time.Millisecond, 10*time.Millisecond)
			worst = max(worst, r.l.limit(r.now))
		}
		if got := r.l.limit(r.now); worst > 1600*time.Millisecond || got > worst {
			t.Errorf("%s: limit %v at most, %v in the end", name, worst, got)
		}
	}
}

// The waits within a stall do not raise the limit before the stall is reported, even if another
// duration was recorded shortly before.
func TestSampleCountsAfterDelay(t *testing.T) {
	for gap := time.Duration(0); gap <= sampleDelay; gap += sampleDelay / 10 {
		r := new(routine)
		r.l.Begin(0) // no pauses
		r.call(0, 350*time.Millisecond)
		r.call(gap, 2*time.Second)
		from := r.now
		for ; r.now < from+sampleDelay; r.now += 50 * time.Millisecond {
			if got := r.l.limit(r.now); got > 5*time.Second/4 {
				t.Fatalf("gap %v: limit %v after %v", gap, got, r.now-from)
			}
		}
		if got := r.l.limit(r.now); got < 1400*time.Millisecond {
			t.Errorf("gap %v: limit %v in the end", gap, got)
		}
	}
}

// The limit stays between After and limitFactor times the longest recorded duration, and decays to
// After.
func TestLimitIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Limit
		now, most := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(0, 200).Draw(t, "times") {
			now += time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "later"))
			d := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "d"))
			l.RecordWait(d, now)
			most = max(most, d)
			if got := l.limit(now); got < After || got > max(After, limitFactor*most) {
				t.Fatalf("%v where waits took %v at most", got, most)
			}
		}
		l.limit(now + time.Minute)
		if got := l.limit(now + 3*time.Hour); got != After {
			t.Fatalf("%v after hours", got)
		}
	})
}

// The time of a step is its time in calls; overlapping calls count once.
func TestStepTime(t *testing.T) {
	r := new(routine)
	tick := func(d time.Duration) time.Duration { r.now += d; return r.now }
	held := func() time.Duration { return r.l.Judge(0, r.now).Held }
	r.l.Step(0, tick(0))
	r.call(0, time.Second)
	r.l.Step(1, tick(0))
	if held() != 0 {
		t.Errorf("%v of a first step", held())
	}
	r.l.Step(2, tick(time.Second))
	r.l.Begin(tick(time.Second))
	r.l.Begin(tick(300 * time.Millisecond))
	r.l.End(tick(300 * time.Millisecond))
	if got := held(); got != 600*time.Millisecond {
		t.Errorf("%v, want 0.6 s", got)
	}
	r.l.ResetStep(r.now)
	if held() != 0 {
		t.Errorf("%v after the excuse", held())
	}
	r.l.End(tick(300 * time.Millisecond))
	r.l.Step(2, tick(time.Second))
	if got := held(); got != 300*time.Millisecond {
		t.Errorf("%v, want 0.3 s", got)
	}
	if r.l.Step(3, r.now); held() != 0 {
		t.Errorf("%v of a new step", held())
	}
}
