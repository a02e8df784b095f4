package trainer

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawView draws the report of a rank about the decision point after a step.
func drawView(t *rapid.T, step int64) pointReport {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	v := pointReport{point{step: step, decided: flag("decided"), stop: flag("stop"), keep: flag("keep"), concluded: flag("concluded")},
		rapid.Int64Range(0, 3).Draw(t, "seen"), rapid.Int64Range(0, 3).Draw(t, "kept")}
	for range rapid.IntRange(0, maxSums).Draw(t, "sums") {
		v.point.sums = append(v.point.sums, encodeScore(Score{rapid.Int().Draw(t, "samples"), rapid.Int().Draw(t, "correct"), rapid.Float64().Draw(t, "loss")}))
	}
	return v
}

// A report about a decision point survives encoding and decoding.
func TestPointReportsOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t, 7)
		w := v.words()
		if len(w) != pointReportWords {
			t.Fatalf("%d words, want %d", len(w), pointReportWords)
		}
		if got := pointReportOf(w, 7); !reflect.DeepEqual(got, v) {
			t.Fatalf("got %+v, want %+v", got, v)
		}
		w[3] = rapid.Int64().Draw(t, "wrong number of sums")
		if got := pointReportOf(w, 7); len(got.point.sums) > maxSums {
			t.Fatalf("%d sums", len(got.point.sums))
		}
	})
}

// All ranks adopt the same sums of a decision point, and the same conclusion if any rank has one. Without a conclusion each rank
// keeps the decision of its own program.
func TestMergedPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, maxSums).Draw(t, "sums")
		stop, keep := rapid.Bool().Draw(t, "stop"), rapid.Bool().Draw(t, "keep")
		var all []pointReport
		concluded := false
		for range rapid.IntRange(1, 5).Draw(t, "ranks") {
			v := pointReport{point: point{step: 3, decided: rapid.Bool().Draw(t, "decided"), stop: rapid.Bool().Draw(t, "own")}}
			if rapid.Bool().Draw(t, "concluded") {
				v.point = point{step: 3, decided: true, stop: stop, keep: keep, concluded: true}
				concluded = true
			}
			for i := range rapid.IntRange(0, most).Draw(t, "own sums") { // all ranks see the same sums, so each has a prefix of one sequence
				v.point.sums = append(v.point.sums, encodeScore(Score{Samples: i}))
			}
			all = append(all, v)
		}
		for _, v := range all {
			got := v.point.merge(all)
			if first := all[0].point.merge(all); !reflect.DeepEqual(got.sums, first.sums) {
				t.Fatalf("sums %v, at rank 0 %v", got.sums, first.sums)
			}
			if got.concluded != concluded || concluded && (got.stop != stop || got.keep != keep || !got.decided) {
				t.Fatalf("%+v merged to %+v", all, got)
			}
			if !concluded && (got.decided != v.point.decided || got.stop != v.point.stop) {
				t.Fatalf("its own %+v merged to %+v", v, got)
			}
		}
	})
}

// The decision of the rank that has seen most decision points counts. The lowest rank that has the last kept model sends that model
// to the other ranks.
func TestWhoseDecisionCounts(t *testing.T) {
	seen := func(seen, kept int64, stop bool) pointReport { return pointReport{point{stop: stop}, seen, kept} }
	all := []pointReport{seen(1, 0, false), seen(4, 6, true), seen(4, 2, false), seen(2, 6, false)}
	if v := decision(all); !v.point.stop {
		t.Error("not that of rank 1")
	}
	if rank, everywhere := holder(all); rank != 1 || everywhere {
		t.Errorf("the model is at rank %d, everywhere: %t", rank, everywhere)
	}
	if rank, everywhere := holder(all[1:2]); rank != 0 || !everywhere {
		t.Errorf("the model is at rank %d, everywhere: %t", rank, everywhere)
	}
	if rank, everywhere := holder(all[:1]); rank != -1 || !everywhere {
		t.Errorf("no model is at rank %d, everywhere: %t", rank, everywhere)
	}
}

func TestWhereThereArePoints(t *testing.T) {
	for _, c := range []struct {
		every, step int64
		want        bool
	}{{0, 10, false}, {3, 0, false}, {3, 3, true}, {3, 4, false}, {3, 6, true}, {3, 10, true}, {99, 10, true}, {99, 9, false}} {
		d := decisions{every: c.every, of: func() int64 { return 10 }}
		if got := d.due(c.step); got != c.want {
			t.Errorf("every %d, step %d: %t", c.every, c.step, got)
		}
	}
}
