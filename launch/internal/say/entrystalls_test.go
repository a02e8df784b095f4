package say

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/wire"
)

const testOverload = "host overloaded (run queue 61 on 2 cores)"

// entryReport is a report of a peer that waits for others to enter epoch 7.
type entryReport struct {
	peer            int
	culprits, phase string
	seconds         float64
}

// collectEntries passes reports at now to s.
func collectEntries(t *testing.T, s *Stalls, now time.Time, reports ...entryReport) {
	t.Helper()
	for _, r := range reports {
		e := event.Stall{Culprit: r.culprits, Phase: r.phase, What: "enter epoch 7", SinceMS: 1000 * r.seconds}
		if line := s.Line(r.peer, e, now, bracketed); line != "" {
			t.Errorf("%+v: %q at once", r, line)
		}
	}
}

func TestEntryStalls(t *testing.T) {
	for _, test := range []struct {
		name    string
		load    string
		reports []entryReport
		want    string
	}{
		{"one peer", testOverload, []entryReport{{2, "a", "absent", 1.5}},
			"peer 2 has waited 1.5 s for <a> in enter epoch 7 (absent)"},
		{"one peer, two phases", "", []entryReport{{2, "a", "absent", 1.5}, {2, "b", "loads data", 1.5}},
			"peer 2 has waited 1.5 s for <a,b> in enter epoch 7"},
		{"one culprit", "", []entryReport{{2, "a", "loads data", 1.6}, {3, "a", "loads data", 1.5}, {4, "a", "loads data", 3}, {2, "a", "loads data", 3}},
			"3 of 8 peers have waited 1.5 s for <a> to enter epoch 7 (loads data)"},
		{"two phases", "", []entryReport{{2, "a", "loads data", 1.5}, {3, "b", "absent", 1.5}},
			"2 of 8 peers have waited 1.5 s for <a,b> to enter epoch 7"},
		{"few culprits", testOverload, []entryReport{{0, "a,b", "absent", 1.5}, {1, "b,c", "absent", 1.5}},
			"2 of 8 peers have waited 1.5 s for <a,b,c> to enter epoch 7 (absent): " + testOverload},
		{"many culprits", testOverload, []entryReport{{0, "a,b", "absent", 1.5}, {1, "c,d", "absent", 1.5}},
			"2 of 8 peers have waited 1.5 s for others to enter epoch 7: " + testOverload},
		{"no overload", "", []entryReport{{0, "a,b", "absent", 1.5}, {1, "c,d", "absent", 1.5}},
			"2 of 8 peers have waited 1.5 s for others to enter epoch 7"},
		{"a long phase", "", []entryReport{{0, "a", strings.Repeat("x", 200), 1.5}, {1, "a", strings.Repeat("x", 200), 1.5}},
			"2 of 8 peers have waited 1.5 s for others to enter epoch 7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, now := Stalls{Load: func() string { return test.load }}, time.Unix(1000, 0)
			collectEntries(t, &s, now, test.reports...)
			if lines := s.Due(now.Add(entryPeriod-1), 8, bracketed); len(lines) > 0 {
				t.Errorf("%q too early", lines)
			}
			now = now.Add(entryPeriod)
			if lines := s.Due(now, 8, bracketed); !slices.Equal(lines, []string{test.want}) {
				t.Errorf("%q, want %q", lines, test.want)
			}
			// A minute later, a line names a member that is still missing.
			now = now.Add(stallPause)
			s.Due(now, 8, bracketed)
			collectEntries(t, &s, now, entryReport{2, "a", "absent", 62})
			want := []string{"peer 2 has waited 62.0 s for <a> in enter epoch 7 (absent)"}
			if lines := s.Due(time.Time{}, 8, bracketed); !slices.Equal(lines, want) {
				t.Errorf("later: %q, want %q", lines, want)
			}
		})
	}
}

// A line about an entry does not name members that an earlier line has named, and does not count
// peers that wait only for such members.
func TestEntryStallsOfKnownCulprits(t *testing.T) {
	var s Stalls
	now := time.Unix(1000, 0)
	s.Line(0, event.Stall{Culprit: "a", What: "barrier", SinceMS: 1000}, now, bracketed)
	collectEntries(t, &s, now, entryReport{1, "a", "absent", 1.5}, entryReport{2, "b,a", "absent", 1.5}, entryReport{3, "a", "absent", 1.5})
	want := []string{"peer 2 has waited 1.5 s for <b> in enter epoch 7 (absent)"}
	if lines := s.Due(time.Time{}, 8, bracketed); !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
}

// For any number and order of reports, the first report makes a line within entryPeriod, and an
// entry makes at most one line in stallPause. No line is too long.
func TestEntryStallsOnceEach(t *testing.T) {
	named := regexp.MustCompile(entering + "[0-9]+")
	rapid.Check(t, func(t *rapid.T) {
		s := Stalls{Load: func() string { return "host overloaded (threads waited for a core 100 % of 10 s)" }}
		start, told := time.Unix(0, 0), make(map[string]time.Time) // time of the last line by epoch
		now := start
		describe := func(ids string) string {
			return strings.Repeat("peer 16383 (abcdefgh), ", min(ShownPeers, len(wire.SplitIDs(ids))))
		}
		for range rapid.IntRange(1, 80).Draw(t, "reports") {
			what := entering + fmt.Sprint(math.MaxUint64-rapid.Uint64Range(0, 2).Draw(t, "epoch"))
			culprit := fmt.Sprintf("m%d,m%d", rapid.IntRange(0, 300).Draw(t, "who"), rapid.IntRange(0, 300).Draw(t, "too"))
			e := event.Stall{Culprit: culprit, Phase: "not in the session", What: what, SinceMS: rapid.Float64Range(1500, 1e6).Draw(t, "since")}
			s.Line(rapid.IntRange(0, 16383).Draw(t, "peer"), e, now, describe)
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
			for _, line := range s.Due(now, 16384, describe) {
				if len(line) > LineRoom {
					t.Fatalf("%d bytes: %s", len(line), line)
				}
				epoch := named.FindString(line)
				if at, ok := told[epoch]; ok && now.Sub(at) < stallPause {
					t.Fatalf("told again after %v: %s", now.Sub(at), line)
				}
				told[epoch] = now
			}
			if len(told) == 0 && now.Sub(start) >= entryPeriod {
				t.Fatalf("nothing is told after %v", now.Sub(start))
			}
		}
	})
}

// Reports of any number of made-up epochs take a bounded amount of memory.
func TestEntryStallsForget(t *testing.T) {
	var s Stalls
	for i := range 3 * maxReported {
		s.Line(0, event.Stall{Culprit: fmt.Sprint("m", i), What: entering + fmt.Sprint(i)}, time.Unix(0, 0), bracketed)
	}
	if len(s.entries) > maxReported {
		t.Errorf("%d entries are kept", len(s.entries))
	}
}
