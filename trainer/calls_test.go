package trainer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The calls are as few as possible and keep the order of microbatches. The last call is as long as possible. If there are three or
// more calls, the first call is also as long as possible.
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
		for i, c := range calls {
			long := i == len(calls)-1 || i == 0 && len(calls) > 2
			if len(c) == 0 || len(c) > most || long && len(c) < min(most, len(micros)) {
				t.Fatalf("calls of %d microbatches, at most %d: %v", len(micros), most, calls)
			}
		}
	})
}

func TestMostOfAModel(t *testing.T) {
	for samples, want := range map[int]int{0: 1, 7: 1, 8: 1, 15: 1, 16: 2, 800: 100} {
		if got := mostOf(Model{MaxSamples: samples}, 8, false); got != want {
			t.Errorf("%d microbatches of 8 for a model of %d samples, want %d", got, samples, want)
		}
	}
	if got := mostOf(Model{MaxSamples: 800}, 8, true); got != 1 {
		t.Errorf("%d microbatches for a model that is not Grouped, in exact mode", got)
	}
	if got := mostOf(Model{MaxSamples: 800, Grouped: true}, 8, true); got != 100 {
		t.Errorf("%d microbatches for a model that is Grouped, want 100", got)
	}
}
