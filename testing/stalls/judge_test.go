package stalls

import (
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
)

// promised is the time within which the other members must name the culprit.
const promised = 2 * time.Second

// tally counts the verdicts on the logs of all members except the culprit, over some runs.
type tally struct {
	right, wrong, missing int
	times                 []time.Duration // times from the beginning of the cause to the first right event
	notes                 []string        // descriptions of the wrong and missing reports
}

func (t *tally) add(b tally) {
	t.right += b.right
	t.wrong += b.wrong
	t.missing += b.missing
	t.times = append(t.times, b.times...)
	t.notes = append(t.notes, b.notes...)
}

// row returns a line of the table.
func (t *tally) row(name string) string {
	slices.Sort(t.times)
	median, worst := time.Duration(0), time.Duration(0)
	if n := len(t.times); n > 0 {
		median, worst = t.times[n/2], t.times[n-1]
	}
	return fmt.Sprintf("%-30s %6d %6d %8d %8.2f s %8.2f s", name, t.right, t.wrong, t.missing, median.Seconds(), worst.Seconds())
}

// judge judges the logs of a run. A member counts once: as wrong if it has named another member at any time, as missing if it has
// not named the culprit in time, otherwise as right.
func (f *field) judge(c cause) tally {
	var out tally
	for _, m := range f.members {
		if m == f.culprit || f.gone(m.ID) {
			continue
		}
		took, problem := f.judgeMember(c, m)
		switch {
		case problem != "":
			out.wrong++
			out.notes = append(out.notes, fmt.Sprintf("%s: %s", m.ID, problem))
		case took == 0 || took > promised:
			out.missing++
			out.notes = append(out.notes, fmt.Sprintf("%s: named the culprit after %v", m.ID, took))
		default:
			out.right++
		}
		if took > 0 {
			out.times = append(out.times, took)
		}
	}
	return out
}

// gone reports whether a member was killed.
func (f *field) gone(id elastic.ID) bool {
	select {
	case <-f.network.Gone(id):
		return true
	default:
		return false
	}
}

// judgeMember returns the time from the beginning of the cause until a member named the culprit, or
// 0 if it did not, and the first mistake of the member.
func (f *field) judgeMember(c cause, m *member) (took time.Duration, problem string) {
	culprit := f.culprit.ID.Short()
	for _, e := range f.log() {
		if e.Peer != m.ID.Short() {
			continue
		}
		since := e.Time.Sub(f.onset)
		named := false
		switch b := e.Body.(type) {
		case event.Stall:
			if b.Over {
				continue
			}
			named = true
			if problem == "" {
				problem = f.check(c, b, since)
			}
		case event.Lost:
			named = c.loses && b.Who == culprit
			if b.Who == culprit && !c.loses && problem == "" {
				problem = fmt.Sprintf("the culprit was lost after %v (%s)", since, b.Cause)
			}
		}
		if named && took == 0 && problem == "" {
			took = max(since, 1)
		}
	}
	return took, problem
}

// check returns the mistake in a stall event, or "" if there is none.
func (f *field) check(c cause, s event.Stall, since time.Duration) string {
	switch {
	case since < 0:
		return fmt.Sprintf("false alarm %v before the cause set in: %+v", -since, s)
	case s.Culprit != f.culprit.ID.Short():
		return fmt.Sprintf("after %v it named others than %s: %+v", since, f.culprit.ID, s)
	case !slices.Contains(c.phases, s.Phase):
		return fmt.Sprintf("after %v it said something else than %q: %+v", since, c.phases, s)
	case s.What == "" || s.SinceMS < 500:
		return fmt.Sprintf("after %v it did not say what is held up, or not for how long: %+v", since, s)
	}
	return ""
}
