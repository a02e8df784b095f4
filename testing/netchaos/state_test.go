package netchaos

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// transfer has the measurements of a newcomer's copy of the state, and of the steps of an earlier
// member.
type transfer struct {
	bytes     int64
	took      time.Duration
	before    time.Duration // median step time of an earlier member before the peer joined
	meanwhile time.Duration // median step time of the earlier member while the peer joined
	longest   time.Duration // longest step while the peer joined
	admission time.Duration // longest time between two steps when the peer was admitted
}

// rate returns the bytes per second.
func (t transfer) rate() float64 { return float64(t.bytes) / t.took.Seconds() }

// String returns the transfer as a line of the log.
func (t transfer) String() string {
	return fmt.Sprintf("%6.1f MB in %6d ms, %5.1f MB/s; step before %d ms, meanwhile %d ms, longest %d ms, at admission %d ms",
		float64(t.bytes)/1e6, t.took.Milliseconds(), t.rate()/1e6, t.before.Milliseconds(), t.meanwhile.Milliseconds(),
		t.longest.Milliseconds(), t.admission.Milliseconds())
}

// A newcomer copies the state from all members at the same time, each at its rate. Steps become at
// most a fifth longer meanwhile. Only the long form has enough steps to check step times.
func TestState(t *testing.T) {
	parallel(t)
	// 10 MB at 2.5 MB/s, or 400 MB at 100 Mbit/s.
	long := flagged[bool]("long")
	o := order{Params: 1 << 14, Slots: 159, Rate: 2_500_000}
	faster := 1.5 // lower in the short form, in which other work than sending has a larger part
	if long {
		o.Params, o.Slots, o.Rate = 1<<17, 762, 12_500_000
		faster = 3
	}
	const step = 200 * time.Millisecond
	o.Dir = folder(t)
	all := map[int]transfer{}
	for _, donors := range []int{1, 4} {
		o.First, o.Pace = donors, step*time.Duration(donors)/microbatches
		x := joinWith(t, o)
		t.Logf("%d donors: %v", donors, x)
		all[donors] = x
		if x.bytes < int64(o.state()) {
			t.Errorf("%d donors: %d bytes were moved, the state has %d", donors, x.bytes, o.state())
		}
		if most := x.before * 6 / 5; long && x.meanwhile > most {
			t.Errorf("%d donors: a step took %v while a peer joined, want at most %v", donors, x.meanwhile, most)
		}
		if long && x.admission > 2*x.before+50*time.Millisecond {
			t.Errorf("%d donors: %v from step to step when the peer was admitted, want at most one step's pause (%v)", donors, x.admission, x.before)
		}
	}
	ratio := all[1].took.Seconds() / all[4].took.Seconds()
	t.Logf("four donors are %.2f times as fast as one", ratio)
	if ratio < faster {
		t.Errorf("four donors are %.2f times as fast as one, want %.1f", ratio, faster)
	}
}

// joinWith lets one peer join the members of the first view, and returns the measurements.
func joinWith(t *testing.T, o order) transfer {
	t.Helper()
	l := newLab(t, o.First+1)
	o.Dir = filepath.Join(o.Dir, fmt.Sprint(o.First))
	makeDir(t, o.Dir)
	var logs []*journal
	var all []*process.Process
	add := func() {
		o.Index = len(logs)
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, process.Start(t, on(t, l.hosts[o.Index], []string{thenVariable + "=member", orderVariable + "=" + string(b)}, process.Self(t))))
		logs = append(logs, newJournal(t, filepath.Join(o.Dir, fmt.Sprintf("events-%d.jsonl", o.Index))))
	}
	for range o.First {
		add()
	}
	process.Until(t, "steps of the first members", func() bool { return logs[0].Read(t).Step > 20 })
	begun := time.Now()
	add()
	newcomer := logs[o.First]
	level := func(_ event.Event, b event.Join) bool { return b.Reason == "level" }
	if !process.Holds(t.Context(), limit, func() bool { _, ok := first(t, newcomer, begun, level); return ok }) {
		t.Fatalf("%d donors: the peer has not joined after %v", o.First, limit)
	}
	e, _ := first(t, newcomer, begun, level)
	if lost, ok := first(t, logs[0], time.Time{}, func(event.Event, event.Lost) bool { return true }); ok {
		t.Errorf("%d donors: a member was put out: %+v", o.First, lost)
	}
	process.Until(t, "steps with the newcomer", func() bool { return newcomer.Read(t).Step > 10 && newcomer.StepEpoch >= e.Epoch })
	admitted := logs[0].Read(t).Step
	process.Until(t, "more of them", func() bool { return newcomer.Read(t).Step > admitted+10 })
	b := e.Body.(event.Join)
	x := transfer{bytes: b.Bytes, took: time.Duration(b.MS * float64(time.Millisecond))}
	x.observe(logs[0].Read(t).Events, e.Time.Add(-x.took), e.Time)
	for _, p := range all {
		p.Kill()
	}
	return x
}

// observe computes the step times from the journal of an earlier member. The peer joined in the
// time from begun to level.
func (t *transfer) observe(events []event.Event, begun, level time.Time) {
	var last time.Time
	var before, meanwhile []time.Duration
	for _, e := range events {
		if e.Body.Name() != "step" {
			continue
		}
		gap := e.Time.Sub(last)
		switch {
		case last.IsZero() || e.Step < 5: // still warming up
		case e.Time.Before(begun):
			before = append(before, gap)
		case last.Before(level.Add(-gap)):
			meanwhile = append(meanwhile, gap)
		case last.Before(level.Add(2 * time.Second)):
			t.admission = max(t.admission, gap)
		}
		last = e.Time
	}
	t.before, t.meanwhile = median(before), median(meanwhile)
	t.longest = slices.Max(append(meanwhile, 0))
}

// median returns the middle value, or 0 if there is none.
func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}
