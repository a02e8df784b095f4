package say

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// bracketed replaces the function that describes short IDs.
func bracketed(ids string) string { return "<" + ids + ">" }

func TestStallLine(t *testing.T) {
	for _, c := range []struct {
		e    event.Stall
		want string
	}{
		{event.Stall{Culprit: "abc", Phase: "not in the call", What: "allreduce", SinceMS: 3200},
			"peer 2 has waited 3.2 s for <abc> in allreduce (not in the call)"},
		{event.Stall{Culprit: "abc", Phase: "reduce"}, "peer 2 has waited 0.0 s for <abc> in reduce"},
		{event.Stall{Culprit: "abc", What: "barrier", SinceMS: 50}, "peer 2 has waited 0.1 s for <abc> in barrier"},
		{event.Stall{Culprit: "a,b", Phase: "no answer", What: "barrier"}, "peer 2 has waited 0.0 s for <a,b> in barrier (no answer)"},
		{event.Stall{Phase: "no answer", What: "barrier"}, ""},
		{event.Stall{Culprit: "abc", Phase: "reduce", Over: true}, ""},
		{event.Stall{Culprit: "abc", What: "enter epoch 3", Over: true}, ""},
	} {
		var s Stalls
		if got := s.Line(2, c.e, time.Unix(0, 0), bracketed); got != c.want {
			t.Errorf("%+v: %q, want %q", c.e, got, c.want)
		}
	}
}

// A stall makes a line for any number of reports, and again when it has lasted 10 s, 30 s and each
// minute. A later stall of the same culprit makes another line after stallPause.
func TestStallsOncePerCulprit(t *testing.T) {
	var s Stalls
	start := time.Unix(1000, 0)
	for i, c := range []struct {
		at, since time.Duration // report, and how long the reporter has waited
		culprits  string
		want      string
	}{
		{3 * time.Second, 3 * time.Second, "abc", "<abc>"},
		{4 * time.Second, 3 * time.Second, "abc", ""},
		{20 * time.Second, 20 * time.Second, "def,abc", "<def,abc>"},
		{29 * time.Second, 29 * time.Second, "abc", ""},
		{31 * time.Second, 31 * time.Second, "abc", "<abc>"},
		{59 * time.Second, 59 * time.Second, "abc", ""},
		{70 * time.Second, 70 * time.Second, "abc", "<abc>"},
		{110 * time.Second, 110 * time.Second, "abc", ""},
		{121 * time.Second, 121 * time.Second, "abc", "<abc>"},
		{5 * time.Minute, 2*time.Minute + 50*time.Second, "abc,def", "<abc,def>"}, // new stalls of both, which began later
		{5*time.Minute + 5*time.Second, 3 * time.Minute, "abc", ""},
		{9*time.Minute + 10*time.Second, 5 * time.Second, "def", "<def>"},
		{9*time.Minute + 30*time.Second, 5 * time.Second, "def", ""}, // too soon after the last line
	} {
		e := event.Stall{Culprit: c.culprits, What: "sum", SinceMS: float64(c.since.Milliseconds())}
		got := s.Line(1, e, start.Add(c.at), bracketed)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("report %d: %q, want %q in it", i, got, c.want)
		}
	}
}

// For any order of reports, the first report about a culprit makes a line at once, and a culprit
// has at most four lines in stallPause.
func TestStallsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Stalls
		now, told := time.Unix(0, 0), map[string][]time.Time{}
		for range rapid.IntRange(1, 60).Draw(t, "reports") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90_000).Draw(t, "ms")) * time.Millisecond)
			id := fmt.Sprint("m", rapid.IntRange(0, 3).Draw(t, "who"))
			e := event.Stall{Culprit: id, Phase: "p", SinceMS: float64(rapid.IntRange(0, 120_000).Draw(t, "since"))}
			line := s.Line(0, e, now, bracketed)
			if line != "" {
				told[id] = append(told[id], now)
			}
			switch n := len(told[id]); {
			case n == 0:
				t.Fatalf("%s is not told at first", id)
			case n > 4 && told[id][n-1].Sub(told[id][n-5]) < stallPause:
				t.Fatalf("%s is told at %v", id, told[id])
			}
		}
	})
}

func TestStallsForget(t *testing.T) {
	var s Stalls
	for i := range 3 * maxReported {
		s.Line(0, event.Stall{Culprit: fmt.Sprint("m", i)}, time.Unix(0, 0), bracketed)
	}
	if len(s.culprits) > maxReported+1 {
		t.Errorf("%d culprits are kept", len(s.culprits))
	}
}
