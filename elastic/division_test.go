package elastic

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/loadbal"
)

// simulate runs steps of ranks that take the given times per sample. It returns the samples of each
// rank in the last step, and the duration of all steps.
func simulate(t *testing.T, b Balance, n, steps int, each []time.Duration) (parts []int, took time.Duration) {
	t.Helper()
	d := newDivision(b, make([]int64, len(each)))
	for range steps {
		d.divide(n)
		parts = make([]int, len(each))
		all := make([]record, len(each))
		slowest, next := time.Duration(0), 0
		for rank := range each {
			lo, hi := d.part(n, rank)
			if lo != next || hi < lo {
				t.Fatalf("rank %d has %d to %d, after %d", rank, lo, hi, next)
			}
			next, parts[rank] = hi, hi-lo
			computing := time.Duration(hi-lo) * each[rank]
			slowest = max(slowest, computing)
			all[rank] = record{samples: int64(n), micros: computing.Microseconds()}
		}
		if next != n {
			t.Fatalf("%d of %d samples", next, n)
		}
		d.learn(all)
		took += slowest
	}
	return parts, took
}

// Parts follow the speeds, for few samples and for many: with speeds 1:1:1:1/4 the step time comes
// close to the optimum. The policy Equal ignores speeds.
func TestPartsFollowSpeeds(t *testing.T) {
	for _, n := range []int{64, 130, 1000, 100_000, 10_000_000} {
		each := make([]time.Duration, 4)
		for rank := range each {
			each[rank] = 100 * time.Millisecond / time.Duration(n) * 4
		}
		each[3] *= 4
		const steps = 100
		parts, took := simulate(t, "", n, steps, each)
		best := steps * time.Duration(float64(n)*float64(each[0])/3.25)
		if part := float64(best) / float64(took); part < 0.95 {
			t.Errorf("%d samples: %.3f of the sum of speeds, parts %v", n, part, parts)
		}
		parts, _ = simulate(t, Equal, n, 3, each)
		if parts[0]-parts[3] > 1 {
			t.Errorf("equal parts of %d samples: %v", n, parts)
		}
	}
}

// For any sequence of sample numbers, the parts cover each sample once, and all ranks compute the
// same parts.
func TestPartsCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 9).Draw(t, "ranks")
		policy := rapid.SampledFrom(append(loadbal.Names(), "")).Draw(t, "policy")
		speeds := rapid.SliceOfN(rapid.Int64Range(0, 1<<50), ranks, ranks).Draw(t, "speeds")
		d, twin := newDivision(Balance(policy), speeds), newDivision(Balance(policy), speeds)
		size := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, 1<<20), rapid.IntRange(0, maxSamples))
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			n := size.Draw(t, "samples")
			d.divide(n)
			twin.divide(n)
			all := make([]record, ranks)
			for _, m := range []int{n, size.Draw(t, "others")} {
				next := 0
				for rank := range ranks {
					lo, hi := d.part(m, rank)
					if a, b := twin.part(m, rank); lo != next && (lo != 0 || hi != 0) || hi < lo || a != lo || b != hi {
						t.Fatalf("rank %d of %d samples: %d to %d after %d; at another rank %d to %d", rank, m, lo, hi, next, a, b)
					}
					next = hi
					all[rank] = record{samples: int64(n), micros: rapid.Int64Range(0, 1<<50).Draw(t, "micros")}
				}
				if next != m && d.ends != nil {
					t.Fatalf("%d of %d samples", next, m)
				}
				if m == n && n >= ranks && d.unit == 1 && ranks > 1 {
					for rank := range ranks {
						if lo, hi := d.part(n, rank); hi == lo {
							t.Fatalf("rank %d has none of %d samples", rank, n)
						}
					}
				}
			}
			d.learn(all)
			twin.learn(all)
		}
	})
}

// Records survive their encoding.
func TestRecordWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.Int64()
		r := record{loop: rapid.IntRange(0, 1<<30).Draw(t, "loop"), until: word.Draw(t, "until"), step: word.Draw(t, "step"),
			samples: word.Draw(t, "samples"), micros: word.Draw(t, "micros"), speed: word.Draw(t, "speed"), digest: rapid.Uint64().Draw(t, "digest"),
			stale: rapid.Bool().Draw(t, "stale"), stop: rapid.Bool().Draw(t, "stop"), cheap: rapid.Bool().Draw(t, "cheap")}
		if got := recordsOf(append(r.words(), r.words()...)); len(got) != 2 || got[0] != r || got[1] != r {
			t.Fatalf("%+v became %+v", r, got)
		}
	})
}

// A member that differs from the majority is named, with both values.
func TestCompareRecords(t *testing.T) {
	same := record{loop: 1, until: 9, step: 3, samples: 64}
	for want, change := range map[string]func(*record){
		"peer 1 is in loop 1 (of 8 steps), but peer 0 is in loop 1 (of 9 steps)": func(r *record) { r.until = 8 },
		"peer 1 is in loop 2 (of 9 steps)":                                       func(r *record) { r.loop = 2 },
		"peer 1 has committed step 4, but peer 0 has committed step 3":           func(r *record) { r.step = 4 },
		"peer 1 calls Part with -1, but peer 0 calls Part with 64":               func(r *record) { r.samples = -1 },
		"after step 3 the state of peer 1":                                       func(r *record) { r.digest = 7 },
	} {
		all := []record{same, same, same}
		all[0].digest, all[1].digest, all[2].digest = 5, 5, 5
		if err := compareRecords(all, []string{"peer 0", "peer 1", "peer 2"}); err != nil {
			t.Errorf("equal records: %v", err)
		}
		change(&all[1])
		err := compareRecords(all, []string{"peer 0", "peer 1", "peer 2"})
		if err == nil || len(err.Error()) > 170 || len(want) > len(err.Error()) || err.Error()[:len(want)] != want {
			t.Errorf("got %v, want %q...", err, want)
		}
	}
}

// Digests take at most a hundredth of the time, however long a single digest takes.
func TestDigestsAreCheap(t *testing.T) {
	now := time.Now()
	for _, took := range []time.Duration{time.Microsecond, time.Second} {
		d := digests{took: took, at: now}
		if d.cheap(now.Add(99*took)) || !d.cheap(now.Add(100*took)) {
			t.Errorf("one of %v", took)
		}
	}
}

// Shares are logged when they change.
func TestChangedShares(t *testing.T) {
	d := newDivision("", make([]int64, 2))
	for i, want := range []string{"[5 5] the members have changed", "<nil>"} {
		d.divide(10)
		got := "<nil>"
		if e := d.changed(10); e != nil {
			got = fmt.Sprint(e.New, " ", e.Reason)
		}
		if got != want {
			t.Errorf("%d: got %s, want %s", i, got, want)
		}
	}
}
