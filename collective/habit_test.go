package collective

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
)

// routine lets habits live through calls.
type routine struct {
	h   habits
	now time.Duration
}

func newRoutine() *routine { return &routine{h: habits{kinds: make(map[transport.Call]*longest)}} }

// call makes one call.
func (r *routine) call(c transport.Call, pause, d time.Duration) {
	r.now += pause
	r.h.begin(r.now)
	r.now += d
	r.h.end(c, true, d, r.now)
}

func barrier() transport.Call { return transport.Call{Kind: transport.KindBarrier} }

// The limit follows what is usual, within its bounds.
func TestLimit(t *testing.T) {
	c := barrier()
	for name, test := range map[string]struct {
		pause, call time.Duration
		low, high   time.Duration
	}{
		"quick calls":          {10 * time.Millisecond, time.Millisecond, time.Second, time.Second},
		"calls of a second":    {10 * time.Millisecond, time.Second, 2900 * time.Millisecond, 3 * time.Second},
		"calls of a minute":    {0, time.Minute, 100 * time.Second, 3 * time.Minute},
		"pauses of a second":   {time.Second, time.Millisecond, 4 * time.Second, 5 * time.Second},
		"pauses of a half":     {500 * time.Millisecond, time.Millisecond, 2 * time.Second, 2500 * time.Millisecond},
		"nothing between them": {0, 0, time.Second, time.Second},
	} {
		r := newRoutine()
		for range 100 {
			r.call(c, test.pause, test.call)
		}
		if got := r.h.limit(c, r.now); got < test.low || got > test.high {
			t.Errorf("%s: %v, want %v to %v", name, got, test.low, test.high)
		}
	}
}

// One evaluation that takes minutes does not make the watch blind, and neither does a
// long pause of this rank's own.
func TestOneLongTimeTeachesLittle(t *testing.T) {
	c := barrier()
	for name, long := range map[string]func(r *routine){
		"call":  func(r *routine) { r.call(c, 0, 5*time.Minute) },
		"pause": func(r *routine) { r.call(c, 5*time.Minute, 0) },
		"wait": func(r *routine) {
			r.call(c, 0, 5*time.Minute)
			r.h.waited(c, 5*time.Minute, r.now)
		},
	} {
		r := newRoutine()
		for range 100 {
			r.call(c, 100*time.Millisecond, 10*time.Millisecond)
		}
		long(r)
		worst := time.Duration(0)
		for range 400 {
			r.call(c, 100*time.Millisecond, 10*time.Millisecond)
			worst = max(worst, r.h.limit(c, r.now))
		}
		if got := r.h.limit(c, r.now); worst > 1600*time.Millisecond || got > worst {
			t.Errorf("%s: limit %v at most, %v in the end", name, worst, got)
		}
	}
}

// What is part of a stall does not count before the stall is reported, not even where
// something was learned just before.
func TestStallTeachesNothingAtOnce(t *testing.T) {
	c := barrier()
	for gap := time.Duration(0); gap <= learnAfter; gap += learnAfter / 10 {
		r := newRoutine()
		r.h.begin(0) // no pauses
		r.call(c, 0, 350*time.Millisecond)
		r.call(c, gap, 2*time.Second)
		from := r.now
		for ; r.now < from+learnAfter; r.now += 50 * time.Millisecond {
			if got := r.h.limit(c, r.now); got > 5*time.Second/4 {
				t.Fatalf("gap %v: limit %v after %v", gap, got, r.now-from)
			}
		}
		if got := r.h.limit(c, r.now); got < 1400*time.Millisecond {
			t.Errorf("gap %v: limit %v in the end", gap, got)
		}
	}
}

// What is learned keeps between what comes in and nothing, and the memory bounded.
func TestLongest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l longest
		now, most := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(0, 200).Draw(t, "times") {
			now += time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "later"))
			d := time.Duration(rapid.Int64Range(int64(worthLearning), int64(time.Minute)).Draw(t, "d"))
			l.learn(lesson{d, now, habitHalving})
			most = max(most, d)
			if got := l.decayed(now); got < 0 || got > most {
				t.Fatalf("%v of at most %v", got, most)
			}
			if len(l.recent) > 30 {
				t.Fatalf("%d kept", len(l.recent))
			}
		}
		if got := l.decayed(now + time.Hour); got > time.Millisecond {
			t.Fatalf("%v left after an hour", got)
		}
	})
}

// The time of a step is that spent in calls, overlapping ones once.
func TestStepTime(t *testing.T) {
	r := newRoutine()
	c := barrier()
	tick := func(d time.Duration) time.Duration { r.now += d; return r.now }
	held := func() time.Duration { return r.h.judge(c, 0, 0, r.now).held }
	r.h.inStep(0, tick(0))
	r.call(c, 0, time.Second)
	r.h.inStep(1, tick(0))
	if held() != 0 {
		t.Errorf("%v of a first step", held())
	}
	r.h.inStep(2, tick(time.Second))
	r.h.begin(tick(time.Second))
	r.h.begin(tick(300 * time.Millisecond))
	r.h.end(c, false, 0, tick(300*time.Millisecond))
	if got := held(); got != 600*time.Millisecond {
		t.Errorf("%v, want 0.6 s", got)
	}
	r.h.excuse(r.now)
	if held() != 0 {
		t.Errorf("%v after the excuse", held())
	}
	r.h.end(c, false, 0, tick(300*time.Millisecond))
	r.h.inStep(2, tick(time.Second))
	if got := held(); got != 300*time.Millisecond {
		t.Errorf("%v, want 0.3 s", got)
	}
	if r.h.inStep(3, r.now); held() != 0 {
		t.Errorf("%v of a new step", held())
	}
}

// The kinds of calls that are remembered are bounded.
func TestKindsAreBounded(t *testing.T) {
	r := newRoutine()
	for i := range 3 * mostKinds {
		r.call(transport.Call{Kind: transport.KindBarrier, Count: uint64(i)}, 0, 0)
		if len(r.h.kinds) > mostKinds {
			t.Fatalf("%d kinds", len(r.h.kinds))
		}
	}
}

// What was asked and not answered is known, whatever is lost of asks and answers.
func TestPending(t *testing.T) {
	ms := time.Millisecond
	for name, test := range map[string]struct {
		asks, answers []time.Duration
		want          time.Duration
	}{
		"nothing":                          {nil, nil, 0},
		"no answer":                        {[]time.Duration{200 * ms, 400 * ms}, nil, 200 * ms},
		"all answers":                      {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{200 * ms, 400 * ms}, 0},
		"the last":                         {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{400 * ms}, 0},
		"the first":                        {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{200 * ms}, 400 * ms},
		"an answer twice":                  {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{200 * ms, 200 * ms}, 400 * ms},
		"one from before the last answers": {[]time.Duration{200 * ms, 400 * ms}, []time.Duration{400 * ms, 200 * ms}, 0},
	} {
		w := &world{started: time.Now().Add(-time.Minute), ranks: 2, contacts: map[int]*contact{1: {}}}
		c := w.contacts[1]
		for _, at := range test.asks {
			c.ask(at)
		}
		for _, at := range test.answers {
			w.told(1, signal{at: at})
		}
		if c.pending != test.want {
			t.Errorf("%s: pending since %v, want %v", name, c.pending, test.want)
		}
	}
}
