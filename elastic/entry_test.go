package elastic

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/event"
)

// The interval between reports of an entry doubles, and one report is due at makeWayAfter, when
// members are asked to step down.
func TestEntryReports(t *testing.T) {
	begun := time.Unix(1000, 0)
	var e sessionEntry
	if _, due := e.due(begun.Add(time.Hour)); due || e.waits(0) || e.under(0) {
		t.Errorf("a member that enters no session reports, or waits: %+v", e)
	}
	e.begin(View{Epoch: 3}, begun)
	var at []time.Duration
	for d := time.Duration(0); d < 3*time.Minute; d += 500 * time.Millisecond {
		if lasted, due := e.due(begun.Add(d)); due {
			at = append(at, lasted)
		}
	}
	want := []time.Duration{1500 * time.Millisecond, 3 * time.Second, 6 * time.Second, 12 * time.Second, 24 * time.Second, makeWayAfter,
		time.Minute, 2 * time.Minute}
	if !slices.Equal(at, want) {
		t.Errorf("reports after %v, want %v", at, want)
	}
	if !e.waits(3) || e.waits(2) {
		t.Error("the member waits for the others in epoch 3 only")
	}
	if e.connected = true; e.waits(3) || !e.under(3) {
		t.Error("a connected member still enters, and waits for nobody")
	}
	if e.end(); e.under(3) {
		t.Error("the entry has ended")
	}
}

// A member whose program hangs while the others enter a session is named in the log, and is asked
// to step down after makeWayAfter. A member that is busy, or was in no session yet, is only named.
func TestAbsentIsAskedToMakeWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			absent heartbeat
			lasted time.Duration
			phase  string // in the event; empty for no event
			asked  bool
		}{
			"soon":           {heartbeat{Entered: 2}, makeWayAfter - time.Second, "not in the session", false},
			"late":           {heartbeat{Entered: 2}, makeWayAfter, "not in the session", true},
			"busy":           {heartbeat{Entered: 2, Busy: "evaluating"}, makeWayAfter, "evaluating", false},
			"still prepares": {heartbeat{}, makeWayAfter, "not in the session", false},
			"has entered":    {heartbeat{Entered: 3}, makeWayAfter, "", false},
		} {
			d := testDriver(t, 4, 0)
			var got []event.Body
			d.emit = func(_ uint64, b event.Body) { got = append(got, b) }
			for _, id := range []ID{"001", "002"} {
				d.roster.peerOf(id).heartbeat.Entered = 3
			}
			d.roster.peerOf("003").heartbeat = c.absent
			d.entry.begin(d.roster.view, time.Now().Add(-c.lasted))
			d.watchEntry(time.Now())
			var want []event.Body
			if c.phase != "" {
				want = append(want, event.Stall{Culprit: ID("003").Short(), Phase: c.phase, What: "enter epoch 3", SinceMS: milliseconds(c.lasted)})
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: events %v, want %v", name, got, want)
			}
			request := ""
			if c.asked {
				request = <-d.ep.Network.(wall).sent
			}
			if want := string(stepDown{Epoch: 3, Entered: 2}.append(nil)); c.asked && request != want || c.asked == d.roster.peerOf("003").blamed.IsZero() {
				t.Errorf("%s: asked by %q, want %q", name, request, want)
			}
		}
	})
}

// A member that enters a session logs no stall because of a member that does not answer, because
// that member may itself wait for others.
func TestWaitingInConnectIsNotNamed(t *testing.T) {
	for _, entering := range []bool{true, false} {
		d := testDriver(t, 3, 0)
		named := 0
		d.emit = func(uint64, event.Body) { named++ }
		if entering {
			d.entry.begin(d.roster.view, time.Now())
		}
		d.reportStall(d.roster.view, collective.Stall{Culprits: []int{1}, Phase: collective.PhaseSilent})
		if want := map[bool]int{false: 1}[entering]; named != want {
			t.Errorf("entering %v: %d events, want %d", entering, named, want)
		}
	}
}
