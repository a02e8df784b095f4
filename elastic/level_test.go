package elastic

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// After the copies all members are level. Each member that lags behind receives one copy, from a
// member that is ahead. The copy consists of updates only if the sender has the updates of all
// steps that the receiver lacks.
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

// If only some of the members have a state, the error names two members.
func TestCopiesOfHalfRegistered(t *testing.T) {
	if _, err := copies([]account{{holds: true}, {}}); err == nil {
		t.Error("no error")
	}
}

// Members that begin with different states get the most common one, or the state of the lowest
// rank, as a whole.
func TestCopiesOfDifferentStates(t *testing.T) {
	begin := func(step int64, digest uint64) account {
		return account{holds: true, step: step, updates: step + 1, digest: digest}
	}
	for _, c := range []struct {
		all  []account
		want []copying
	}{
		{[]account{begin(0, 5), begin(0, 5), begin(0, 6)}, []copying{{from: 0, to: 2}}},
		{[]account{begin(0, 5), begin(0, 6), begin(0, 6)}, []copying{{from: 1, to: 0}}},
		{[]account{begin(0, 5), begin(0, 6), begin(0, 7)}, []copying{{from: 0, to: 1}, {from: 0, to: 2}}},
		{[]account{begin(0, 5), begin(9, 6), begin(9, 6)}, []copying{{from: 1, to: 0}}},
		{[]account{begin(0, 5), begin(9, 6), begin(9, 7)}, []copying{{from: 1, to: 0}, {from: 1, to: 2}}},
		{[]account{begin(9, 0), begin(9, 6), begin(9, 0)}, nil}, // rank 1 is in its first session, the others were level before
	} {
		if got, err := copies(c.all); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %+v and %v, want %+v", c.all, got, err, c.want)
		}
	}
}

// Only members that have copied the leaders' state, or are about to, may get an outdated one.
func TestOutdated(t *testing.T) {
	old := account{step: 7, still: 3}
	for i, c := range []struct {
		all  []account
		want []int64
	}{
		{[]account{old, {step: 7, fresh: true}, {step: 6, still: 2}, {step: -1}, {step: 7}}, []int64{0, 3, 3, 3, 0}},
		{[]account{{step: 7}, {step: 7, fresh: true}, {step: 6, still: 2}}, []int64{0, 0, 0}},
	} {
		for rank, want := range c.want {
			if got := outdated(c.all, rank); got != want {
				t.Errorf("%d, rank %d: %d, want %d", i, rank, got, want)
			}
		}
	}
}

// An account is the same after encoding and decoding.
func TestAccountWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		number := func(name string) int64 { return rapid.Int64().Draw(t, name) }
		a := account{holds: flag("holds"), step: number("step"), updates: number("updates"), fresh: flag("fresh"), still: number("still"),
			settings: uint64(number("settings")), digest: uint64(number("digest")), loop: int(number("loop")),
			until: number("until"), stopped: flag("stopped"), ended: flag("ended"),
			job: uint64(number("job")), run: uint64(number("run"))}
		if got := accountsOf(append(a.words(), a.words()...)); len(got) != 2 || got[0] != a || got[1] != a {
			t.Fatalf("got %+v, want %+v twice", got, a)
		}
	})
}

// Newcomers end if one of them knows that the members before them have finished the job. They go on
// if a member is left, or if the members before them left for another reason.
func TestJobEnded(t *testing.T) {
	fresh, told, old := account{fresh: true}, account{fresh: true, ended: true}, account{ended: true}
	for _, c := range []struct {
		all  []account
		want bool
	}{
		{[]account{told}, true},
		{[]account{fresh, told}, true},
		{[]account{fresh, fresh}, false},
		{[]account{told, old}, false},
		{[]account{old}, false},
	} {
		if got := jobEnded(c.all); got != c.want {
			t.Errorf("%+v: %v", c.all, got)
		}
	}
}
