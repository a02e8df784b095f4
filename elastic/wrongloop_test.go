package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// wrongLoop is a loop with a mistake at one peer.
type wrongLoop struct {
	name string
	loop func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error
	want string // part of the error at the peer with the mistake
	kill bool   // another peer dies, because the mistake has an effect only then
}

// inBody returns a loop that calls the wrong body once step 3 is committed, and a correct body
// before. The function body returns false to leave the loop.
func inBody(body func(ctx context.Context, t *elastic.Turn, l *ledger) bool) func(context.Context, *elastic.Group, *ledger, bool) error {
	return func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
		for t := range g.Steps(ctx, l.state(), 40) {
			if !wrong || l.step < 3 {
				l.attempt(ctx, t)
			} else if !body(ctx, t, l) {
				break
			}
		}
		return g.Err()
	}
}

// reduce reduces a vector over all peers with the operation op.
func reduce(ctx context.Context, t *elastic.Turn, sum []int64, op collective.Op[int64]) error {
	wait(stepTime)
	return collective.AllReduce(ctx, t.Comm, sum, sum, op)
}

// partOf returns this peer's contribution to the step of a turn.
func partOf(t *elastic.Turn, l *ledger) []int64 { return l.part(t.Part(samplesOfStep)) }

// wrongCommits commit something other than the sum of the step.
func wrongCommits() []wrongLoop {
	return []wrongLoop{
		{name: "no commit", want: "neither failed nor committed step 4", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			_ = reduce(ctx, t, partOf(t, l), collective.Sum[int64])
			return true
		})},
		{name: "two commits", want: "from step 3 to step 5", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum := partOf(t, l)
			_ = reduce(ctx, t, sum, collective.Sum[int64])
			l.commit(sum)
			l.commit(sum)
			return true
		})},
		{name: "a longer slice", want: "in step 4 the state: int64[2]: its slice has 3 elements now", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			l.attempt(ctx, t)
			l.sums = append(l.sums, 0)
			return true
		})},
		{name: "no call", want: "calls", loop: inBody(func(_ context.Context, t *elastic.Turn, l *ledger) bool {
			l.commit(partOf(t, l))
			return true
		})},
		{name: "own sum committed", want: "differs from the others' state", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum, own := partOf(t, l), partOf(t, l)
			if err := reduce(ctx, t, sum, collective.Sum[int64]); err == nil {
				l.commit(own)
			}
			return true
		})},
		{name: "error ignored", want: "though a call in it had failed", kill: true, loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum := partOf(t, l)
			_ = reduce(ctx, t, sum, collective.Sum[int64])
			l.commit(sum)
			return true
		})},
	}
}

// wrongExits leave the loop in a wrong way.
func wrongExits() []wrongLoop {
	return []wrongLoop{
		{name: "break", want: "left its loop in step 4 by break", loop: inBody(func(context.Context, *elastic.Turn, *ledger) bool { return false })},
		{name: "break after the commit", want: "left its loop in step 4 by break", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			l.attempt(ctx, t)
			return false
		})},
		{name: "panic", want: "return or a panic", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = g.Err()
				}
			}()
			return inBody(func(context.Context, *elastic.Turn, *ledger) bool { panic("a bug") })(ctx, g, l, wrong)
		}},
		{name: "no reason", want: "Turn.Fail(nil)", loop: inBody(func(_ context.Context, t *elastic.Turn, _ *ledger) bool {
			t.Fail(nil)
			return true
		})},
		{name: "return of an error", want: "continue, and the step is tried again", kill: true, loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum := partOf(t, l)
			if err := reduce(ctx, t, sum, collective.Sum[int64]); err != nil {
				return false
			}
			l.commit(sum)
			return true
		})},
	}
}

// wrongCalls make other calls than the other peers.
func wrongCalls() []wrongLoop {
	return []wrongLoop{
		{name: "mean for sum", want: "int64[2] average", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum := partOf(t, l)
			if err := reduce(ctx, t, sum, collective.Average[int64]); err == nil {
				l.commit(sum)
			}
			return true
		})},
		{name: "other length", want: "int64[3] sum", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum := append(partOf(t, l), 0)
			if err := reduce(ctx, t, sum, collective.Sum[int64]); err == nil {
				l.commit(sum[:2])
			}
			return true
		})},
		{name: "bad argument", want: "bad argument", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum := partOf(t, l)
			_ = collective.AllReduce(ctx, t.Comm, sum[:1], sum, collective.Sum[int64])
			return true
		})},
		{name: "other part", want: "calls Part with 24", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			sum := l.part(t.Part(samplesOfStep / 2))
			if err := reduce(ctx, t, sum, collective.Sum[int64]); err == nil {
				l.commit(sum)
			}
			return true
		})},
		{name: "negative part", want: "Turn.Part(-1)", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			t.Part(-1)
			l.attempt(ctx, t)
			return true
		})},
	}
}

// wrongArguments pass invalid arguments to Steps.
func wrongArguments() []wrongLoop {
	return []wrongLoop{
		{name: "other until", want: "has steps 41", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			return straight(40+map[bool]int64{true: 1}[wrong])(ctx, g, l)
		}},
		{name: "other setting", want: "has rate 2", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			rate := map[bool]string{false: "1", true: "2"}[wrong]
			return straight(40, elastic.Setting{Name: "rate", Value: rate})(ctx, g, l)
		}},
		{name: "other balance", want: "has balance equal", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			if wrong {
				return straight(40, elastic.Equal)(ctx, g, l)
			}
			return straight(40)(ctx, g, l)
		}},
		{name: "nil state", want: "the state is nil", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			if !wrong {
				return straight(40)(ctx, g, l)
			}
			for range g.Steps(ctx, nil, 40) {
				return errors.New("a turn without a state")
			}
			return g.Err()
		}},
		{name: "nil context", want: "the context is nil", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			if wrong {
				ctx = nil
			}
			return straight(40)(ctx, g, l)
		}},
		{name: "map in gob", want: "the order of a map is random", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			state := elastic.Gob(&l.step, &l.sums)
			if wrong {
				state = elastic.Gob(&l.step, &struct{ Moments map[string]float64 }{})
			}
			for t := range g.Steps(ctx, state, 40) {
				l.attempt(ctx, t)
			}
			return g.Err()
		}},
		{name: "negative steps", want: "until is -1", loop: func(ctx context.Context, g *elastic.Group, l *ledger, _ bool) error {
			return straight(-1)(ctx, g, l)
		}},
	}
}

// A loop with a mistake soon ends at all peers with an error. At the peer that made the mistake the
// error describes it. The loop never ends with different models and no error. TestMistakeEndsAll has
// the same mistakes with a slow peer.
func TestWrongLoops(t *testing.T) {
	for _, w := range slices.Concat(wrongCommits(), wrongExits(), wrongCalls(), wrongArguments(), wrongReports()) {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, at all %v", w.name, all), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { w.test(t, all) })
			})
		}
	}
}

// test runs a loop at three peers. One of them is wrong, or all are.
func (w wrongLoop) test(t *testing.T, all bool) {
	r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
		wait(100 * time.Millisecond) // until all have joined
		return w.loop(ctx, g, l, all || g.Self().Index == 1)
	})
	peers := []int{0, 1, 2}
	if w.kill {
		// Peer 2 dies while it computes, before it has contributed to a step, so the call of each
		// other peer fails. Peers begin their calls at multiples of stepTime.
		wait(300*time.Millisecond + stepTime/2)
		r.Kill(2)
		peers = peers[:2]
	}
	ended := r.finish(t, peers...)
	culprit := ended[1].err
	if all && culprit == nil { // the same call at all peers is no mistake
		for _, m := range ended {
			if m.err != nil || !slices.Equal(m.ledger.sums, ended[0].ledger.sums) {
				t.Errorf("%v, %v; another has %v", m.err, m.ledger.sums, ended[0].ledger.sums)
			}
		}
		return
	}
	named := false
	for i, m := range ended {
		switch {
		case m.err == nil || strings.Contains(m.err.Error(), "\n"):
			t.Errorf("peer %d: %v", i, m.err)
		case i == 1 || all:
			named = named || strings.Contains(m.err.Error(), w.want)
		}
		if m.took > 5*time.Second {
			t.Errorf("peer %d took %v", i, m.took)
		}
	}
	if !named {
		t.Errorf("where the mistake is: %v, want %q", culprit, w.want)
	}
	if n := len(r.sink.of("done")); n > 0 {
		t.Errorf("%d peers say that the job is done", n)
	}
}

// A newcomer with another number of steps is refused, and the job goes on.
func TestJoinWithOtherSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 2, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			if g.Self().Index == 2 {
				return straight(101)(ctx, g, l)
			}
			return straight(100)(ctx, g, l)
		})
		wait(300 * time.Millisecond)
		late := r.Join()
		all := r.finish(t, 0, 1, late)
		wantLedger(t, 100, all[:2])
		if !errors.Is(all[2].err, elastic.ErrRefused) || !strings.Contains(all[2].err.Error(), "steps is 100 in the job and 101 at the peer") {
			t.Errorf("%v", all[2].err)
		}
	})
}

// Loops of a nil or zero group, or without a context, are errors and have no turns.
func TestStepsOfNoGroup(t *testing.T) {
	var none context.Context
	for _, g := range []*elastic.Group{nil, {}} {
		for range g.Steps(t.Context(), newLedger().state(), 1) {
			t.Error("a turn")
		}
		if err := g.Err(); err == nil || !strings.Contains(err.Error(), "the group is nil") {
			t.Errorf("%v", err)
		}
		if err := g.Report(elastic.Result{}); err == nil {
			t.Error("reported")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 1, 1, func(_ context.Context, g *elastic.Group, l *ledger) error { return straight(3)(none, g, l) })
		if err := r.finish(t, 0)[0].err; err == nil || !strings.Contains(err.Error(), "context is nil") {
			t.Errorf("%v", err)
		}
	})
}
