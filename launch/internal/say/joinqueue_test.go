package say

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// told advances a JoinQueue by the second and returns the lines and their times.
func told(q *JoinQueue, from, to int) (lines []string, at []int) {
	for s := from; s <= to; s++ {
		for _, line := range q.Due(time.Unix(int64(s), 0)) {
			lines, at = append(lines, line), append(at, s)
		}
	}
	return lines, at
}

func TestJoinQueue(t *testing.T) {
	var q JoinQueue
	if lines, _ := told(&q, 0, 100); lines != nil {
		t.Errorf("with nobody there: %q", lines)
	}
	q.Add(0, "a", time.Unix(100, 0))
	lines, at := told(&q, 100, 300)
	if want := []int{110, 130, 170, 230, 290}; !slices.Equal(at, want) {
		t.Errorf("told at %v, want %v", at, want)
	}
	if want := "peer 0 still waits to join, for 30s now: no member has let it in yet"; lines[1] != want {
		t.Errorf("%q, want %q", lines[1], want)
	}
	q.Event(event.Parked{Who: "a", Reason: "too slow"})
	q.Event(event.Parked{Who: "stranger", Reason: "too late"})
	q.Add(2, "c", time.Unix(301, 0))
	q.Event(event.Parked{Who: "c", Reason: "too new"})
	if lines, _ = told(&q, 301, 360); !slices.Equal(lines, []string{"peers 0, 2 still wait to join, for 4m10s now: too slow"}) {
		t.Errorf("two, with reasons: %q", lines)
	}
	q.Event(event.View{Members: []string{"x", "a"}})
	if lines, _ = told(&q, 361, 410); !slices.Equal(lines, []string{"peer 2 still waits to join, for 1m49s now: too new"}) {
		t.Errorf("with one let in: %q", lines)
	}
	q.Add(2, "d", time.Unix(410, 0))
	q.Event(event.View{Members: []string{"c"}}) // a late event, in which c has its former ID
	if lines, _ = told(&q, 411, 470); len(lines) != 1 {
		t.Errorf("with a new ID: %q", lines)
	}
	q.Remove(2)
	if lines, _ = told(&q, 471, 600); lines != nil {
		t.Errorf("with all gone: %q", lines)
	}
	q.Add(1, "b", time.Unix(700, 0))
	if _, at = told(&q, 700, 715); !slices.Equal(at, []int{710}) {
		t.Errorf("after a new start told at %v", at)
	}
}

// Lines appear only while a peer waits, and at least joinReportPause apart.
func TestJoinQueuePauses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q JoinQueue
		inside := map[int]bool{}
		last := -1
		for s := range rapid.IntRange(1, 400).Draw(t, "seconds") {
			i := rapid.IntRange(0, 3).Draw(t, "peer")
			switch now := time.Unix(int64(s), 0); rapid.IntRange(0, 20).Draw(t, "what") {
			case 0:
				q.Add(i, "abcd"[i:i+1], now)
				inside[i] = true
			case 1:
				q.Remove(i)
				delete(inside, i)
			case 2:
				q.Event(event.View{Members: []string{"abcd"[i : i+1]}})
				delete(inside, i)
			}
			lines, _ := told(&q, s, s)
			if len(lines) > 0 && (len(inside) == 0 || last >= 0 && s-last < int(joinReportPause/time.Second)) {
				t.Fatalf("second %d: %q with %d inside, the line before at %d", s, lines, len(inside), last)
			}
			if len(lines) > 0 {
				last = s
			}
		}
	})
}
