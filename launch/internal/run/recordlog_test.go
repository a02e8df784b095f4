package run

import (
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/spec"
)

func TestTrouble(t *testing.T) {
	for _, c := range []struct {
		body event.Body
		want string
	}{
		{event.Stall{}, "stall"}, {event.Stall{Over: true}, ""}, {event.Lost{}, "lost"}, {event.Step{}, ""},
		{event.Exit{Status: 1}, "exit"}, {event.Exit{Status: -1, Signal: 9}, "exit"}, {event.Exit{}, ""}, {event.Exit{Status: 1, Asked: true}, ""},
		{event.Quorum{State: "lost"}, "quorum"}, {event.Quorum{State: "back"}, ""},
	} {
		if got := trouble(c.body); got != c.want {
			t.Errorf("%+v gives %q, want %q", c.body, got, c.want)
		}
	}
}

// Events of one reason give one record in a period, and a job has maxRecords of them.
func TestRecordLogBounds(t *testing.T) {
	var none *recordLog
	none.offer(event.Event{Body: event.Stall{}}, time.Now())
	none.finish(0)
	r := &recordLog{due: make(chan string, 100), recent: make(map[string]time.Time), left: maxRecords}
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
	for range 3 {
		r.offer(event.Event{Body: event.Stall{}}, now)
		r.offer(event.Event{Body: event.Lost{}}, now)
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
	r.finish(time.Minute)
	if (&recordLog{}).start(&spec.Options{}) != nil {
		t.Error("records without a folder")
	}
}
