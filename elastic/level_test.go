package elastic

import (
	"testing"

	"pgregory.net/rapid"
)

// After the copies all are where the foremost were, each one behind is served once by
// one of those ahead, and updates are used only where they reach far enough.
func TestCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]account, rapid.IntRange(1, 6).Draw(t, "n"))
		high := int64(-1)
		for i := range all {
			step := rapid.Int64Range(-1, 4).Draw(t, "step")
			all[i] = account{holds: true, step: step, updates: step + 1 - rapid.Int64Range(0, step+1).Draw(t, "updates")}
			high = max(high, step)
		}
		todo, err := copies(all)
		if (err != nil) != (high < 0) {
			t.Fatalf("%v: %v", all, err)
		}
		steps := make([]int64, len(all))
		for i, a := range all {
			steps[i] = a.step
		}
		for _, c := range todo {
			from, to := all[c.from], all[c.to]
			if from.step != high || steps[c.to] == high {
				t.Fatalf("%v: %+v", all, c)
			}
			if c.updates && (to.step < 0 || from.updates > to.step+1) {
				t.Fatalf("%v: %+v lacks updates", all, c)
			}
			steps[c.to] = high
		}
		for i, s := range steps {
			if err == nil && s != high {
				t.Fatalf("%v: rank %d stays at %d", all, i, s)
			}
		}
	})
}

// A state at some members only is an error that names two of them.
func TestCopiesOfHalfRegistered(t *testing.T) {
	if _, err := copies([]account{{holds: true}, {}}); err == nil {
		t.Error("no error")
	}
}

func TestDiffer(t *testing.T) {
	a, b := []Setting{{"batch", "4"}, {"seed", "1"}}, []Setting{{"seed", "1"}, {"batch", "4"}}
	if why := differ(a, b); why != "" {
		t.Error(why)
	}
	for want, other := range map[string][]Setting{
		"batch is 4 in the job and 5 at the peer":        {{"batch", "5"}, {"seed", "1"}},
		"seed is 1 in the job, and not set at the peer":  {{"batch", "4"}},
		"extra is 9 at the peer, and not set in the job": {{"batch", "4"}, {"seed", "1"}, {"extra", "9"}},
	} {
		if got := differ(a, other); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
