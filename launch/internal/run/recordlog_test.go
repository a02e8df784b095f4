package run

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/spec"
)

func TestTrouble(t *testing.T) {
	for _, c := range []struct {
		body       event.Body
		want, dead string
	}{
		{event.Stall{}, "stall", ""}, {event.Stall{Over: true}, "", ""}, {event.Lost{Who: "b"}, "lost", "b"}, {event.Step{}, "", ""},
		{event.Exit{Status: 1}, "exit", "a"}, {event.Exit{Status: -1, Signal: 9}, "exit", "a"}, {event.Exit{}, "", ""}, {event.Exit{Status: 1, Asked: true}, "", ""},
		{event.Quorum{State: "lost"}, "quorum", ""}, {event.Quorum{State: "back"}, "", ""},
	} {
		if got, dead := trouble(event.Event{Peer: "a", Body: c.body}); got != c.want || dead != c.dead {
			t.Errorf("%+v gives %q of %q, want %q of %q", c.body, got, dead, c.want, c.dead)
		}
	}
	if reason, dead := trouble(event.Event{Body: event.Exit{PID: 7, Status: 1}}); reason != "exit" || dead != "7" {
		t.Errorf("the exit of an unknown peer gives %q of %q", reason, dead)
	}
}

// A death has one record, whoever tells of it, and however late.
func TestRecordLogDeath(t *testing.T) {
	r := &recordLog{due: make(chan string, 100), recent: make(map[string]time.Time), dead: make(map[string]bool), left: maxRecords}
	now := time.Now()
	lost, exit := event.Event{Peer: "a", Body: event.Lost{Who: "b"}}, event.Event{Peer: "b", Body: event.Exit{Status: -1, Signal: 9}}
	for _, after := range []time.Duration{0, time.Millisecond, 2 * recordPeriod} {
		r.offer(lost, now.Add(after))
		r.offer(exit, now.Add(after))
	}
	r.offer(event.Event{Peer: "c", Body: event.Exit{Status: 1}}, now.Add(4*recordPeriod))
	r.offer(event.Event{Peer: "a", Body: event.Lost{Who: "c"}}, now.Add(6*recordPeriod))
	if got := []string{<-r.due, <-r.due}; len(r.due) != 0 || got[0] != "lost" || got[1] != "exit" {
		t.Errorf("records for %q and %d more", got, len(r.due))
	}
}

// Events of one reason give one record in a period, and a job has maxRecords of them.
func TestRecordLogBounds(t *testing.T) {
	var none *recordLog
	none.offer(event.Event{Body: event.Stall{}}, time.Now())
	none.finish(0, nil)
	r := &recordLog{due: make(chan string, 100), recent: make(map[string]time.Time), dead: make(map[string]bool), left: maxRecords}
	now := time.Now()
	taken := func() string {
		close(r.due)
		var all []string
		for reason := range r.due {
			all = append(all, reason)
		}
		r.due = make(chan string, 100)
		return strings.Join(all, " ")
	}
	for i := range 3 {
		r.offer(event.Event{Body: event.Stall{}}, now)
		r.offer(event.Event{Body: event.Lost{Who: string(rune('a' + i))}}, now)
		now = now.Add(recordPeriod / 2)
	}
	if got := taken(); got != "stall lost stall lost" {
		t.Errorf("records for %q", got)
	}
	for range 2 * maxRecords {
		now = now.Add(recordPeriod)
		r.offer(event.Event{Body: event.Stall{}}, now)
	}
	if got := strings.Count(taken(), "stall"); got != maxRecords-4 || r.left != 0 {
		t.Errorf("%d records more, want %d", got, maxRecords-4)
	}
}

// The record of a job that has ended is none, and no line says so.
func TestRecordLogNoJob(t *testing.T) {
	o := &spec.Options{Job: "no-such-job-of-recordlog", Output: spec.Output{Records: t.TempDir()}}
	r := (&recordLog{say: func(format string, args ...any) { t.Errorf(format, args...) }}).start(o)
	r.offer(event.Event{Body: event.Stall{}}, time.Now())
	r.finish(time.Minute, nil)
	if (&recordLog{}).start(&spec.Options{}) != nil {
		t.Error("records without a folder")
	}
}

// A job that was asked to end loses its peers as it should.
func TestRecordLogStops(t *testing.T) {
	var none *recordLog
	none.stop()
	r := &recordLog{due: make(chan string, 100), recent: make(map[string]time.Time), dead: make(map[string]bool), left: maxRecords}
	r.stop()
	r.offer(event.Event{Body: event.Quorum{State: "lost"}}, time.Now())
	if len(r.due) != 0 {
		t.Errorf("a record for %q", <-r.due)
	}
}

// The launcher, whose loop has ended, answers a record until it is taken.
func TestRecordLogAsksLauncher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make(chan func())
		r := &recordLog{due: make(chan string), ended: make(chan struct{}), cancel: func() {}}
		answers := 0
		go func() {
			for range 2 {
				calls <- func() { answers++ }
			}
			close(r.ended)
		}()
		r.finish(time.Minute, calls)
		if answers != 2 {
			t.Errorf("%d answers, want 2", answers)
		}
	})
}
