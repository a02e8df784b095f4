package elastic_test

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// reporting is a correct loop that reports the samples of each peer, the number of the step, and a
// value of rank 0 only.
func reporting(ctx context.Context, g *elastic.Group, l *ledger) error {
	for t := range g.Steps(ctx, l.state(), 30) {
		lo, hi := t.Part(samplesOfStep)
		t.Report("step", -1)
		t.Report("step", float64(l.step+1))
		t.Report("samples", float64(hi-lo), elastic.ReportSum)
		if t.Rank == 0 {
			t.Report("first", 7)
		}
		l.attempt(ctx, t)
	}
	return g.Err()
}

// A peer dies at its k-th message, for every k in a few turns and their boundaries, with the
// exchange of the values. All events of a step have the same values, over the members that have
// committed the step. The last step has them, too.
func TestReportedValues(t *testing.T) {
	for k := int64(0); k <= 48; k++ {
		synctest.Test(t, func(t *testing.T) {
			var sent atomic.Int64
			var r *run
			ready := make(chan struct{})
			r = startLoops(t, 3, uint64(k), func(ctx context.Context, g *elastic.Group, l *ledger) error {
				<-ready
				return reporting(ctx, g, l)
			})
			r.Network.KillWhen(func(m simnet.Message) bool {
				if k == 0 || m.Plane != simnet.Data || m.From != "member-1" || sent.Load() == 0 && m.Envelope.Call.Count != 2 {
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
			wantReports(t, r.sink.of("step"))
		})
	}
}

// wantReports checks the values of the step events of reporting.
func wantReports(t *testing.T, steps []event.Event) {
	t.Helper()
	without := 0
	for _, e := range steps {
		m := e.Body.(event.Step).Metrics
		switch {
		case m == nil && e.Step < 30:
			without++ // the exchange failed, as a peer died
		case m["step"] != float64(e.Step) || m["samples"] != samplesOfStep || m["first"] != 7 || len(m) != 3:
			t.Errorf("step %d: %v", e.Step, m)
		}
	}
	if without > 3 {
		t.Errorf("%d events without values", without)
	}
}

// Of fast steps only some have events, which all members write. A value that is reported in a single step is in
// exactly one event of each peer.
func TestReportOfFastSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startLoops(t, 3, 1, func(ctx context.Context, g *elastic.Group, l *ledger) error {
			for t := range g.Steps(ctx, l.state(), 100) {
				if l.step == 50 {
					t.Report("once", 2, elastic.ReportSum)
				}
				sum := l.part(t.Part(samplesOfStep))
				if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[int64]); err == nil {
					l.commit(sum)
				}
				wait(time.Duration((l.step+int64(g.Self().Index))%3) * time.Millisecond) // the ends of a turn differ
			}
			return g.Err()
		})
		wantLedger(t, 100, r.finish(t, 0, 1, 2))
		events, found, parts := 0, map[int]int{}, map[int64]int{}
		for _, e := range r.sink.of("step") {
			events++
			parts[e.Step]++
			if m := e.Body.(event.Step).Metrics; m != nil {
				found[e.Index]++
				if m["once"] != 6 || e.Step < 51 {
					t.Errorf("step %d: %v", e.Step, m)
				}
			}
		}
		if found[0] != 1 || found[1] != 1 || found[2] != 1 || events >= 300 {
			t.Errorf("%d events, with the value by peer: %v", events, found)
		}
		for step, n := range parts {
			if n != 3 {
				t.Errorf("%d of 3 members have logged step %d", n, step)
			}
		}
	})
}

// wrongReports report wrong values.
func wrongReports() []wrongLoop {
	report := func(name string, x float64, kind ...elastic.ReportKind) func(context.Context, *elastic.Group, *ledger, bool) error {
		return inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			t.Report("loss", 1)
			t.Report(name, x, kind...)
			l.attempt(ctx, t)
			return true
		})
	}
	return []wrongLoop{
		{name: "not a number", want: "the value is not finite: report it only if it is", loop: report("loss", math.NaN())},
		{name: "infinite", want: "the value is not finite", loop: report("x", math.Inf(-1))},
		{name: "no name", want: "0 bytes: want 1 to 40", loop: report("", 1)},
		{name: "long name", want: "41 bytes: want 1 to 40", loop: report(strings.Repeat("x", 41), 1)},
		{name: "control character", want: "cannot be printed", loop: report("a\x1b[2J", 1)},
		{name: "not UTF-8", want: "cannot be printed", loop: report("\xff", 1)},
		{name: "two kinds", want: "use one kind", loop: report("loss", 1, elastic.ReportSum)},
		{name: "unknown kind", want: "unknown kind 9", loop: report("x", 1, 9)},
		{name: "many names", want: "at most 16 names", loop: inBody(func(ctx context.Context, t *elastic.Turn, l *ledger) bool {
			for i := range 17 {
				t.Report(strings.Repeat("x", i+1), 1)
			}
			l.attempt(ctx, t)
			return true
		})},
		{name: "other names at peers", want: "at most 16 names", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			for t := range g.Steps(ctx, l.state(), 40) {
				for i := range 9 {
					t.Report(strings.Repeat(map[bool]string{false: "x", true: "y"}[wrong], i+1), 1)
				}
				l.attempt(ctx, t)
			}
			return g.Err()
		}},
		{name: "other kinds at peers", want: "use one kind", loop: func(ctx context.Context, g *elastic.Group, l *ledger, wrong bool) error {
			for t := range g.Steps(ctx, l.state(), 40) {
				t.Report("n", 1, map[bool]elastic.ReportKind{true: elastic.ReportSum}[wrong])
				l.attempt(ctx, t)
			}
			return g.Err()
		}},
	}
}
