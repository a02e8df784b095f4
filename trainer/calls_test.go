package trainer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Calls are as few as can be, have what was asked for in that order, and differ by one at most.
func TestCallsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.SliceOfN(rapid.Int(), 0, 50).Draw(t, "micros")
		most := rapid.IntRange(1, 60).Draw(t, "most")
		calls := callsOf(micros, most)
		if got := slices.Concat(calls...); !slices.Equal(got, micros) {
			t.Fatalf("calls of %v: %v", micros, calls)
		}
		if want := ceilDiv(len(micros), most); len(calls) != want {
			t.Fatalf("%d calls of %d microbatches, want %d", len(calls), len(micros), want)
		}
		for _, c := range calls {
			if len(c) > most || len(c) < len(micros)/len(calls) || len(c) > ceilDiv(len(micros), len(calls)) {
				t.Fatalf("calls of %d microbatches, at most %d: %v", len(micros), most, calls)
			}
		}
	})
}

// spacious is a Wide model.
type spacious struct {
	Model
	samples int
}

func (m spacious) MostSamples() int { return m.samples }

func TestMostOfAModel(t *testing.T) {
	for samples, want := range map[int]int{-1: 1, 0: 1, 7: 1, 8: 1, 15: 1, 16: 2, 800: 100} {
		if got := mostOf(spacious{samples: samples}, 8); got != want {
			t.Errorf("%d microbatches of 8 for a model of %d samples, want %d", got, samples, want)
		}
	}
	if got := mostOf(traced{}, 8); got != 1 {
		t.Errorf("%d microbatches for a model that is not Wide", got)
	}
}
