package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/launch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Training improves the model, and its result has the same bits each time, whatever the evaluator
// does.
func TestEvaluator(t *testing.T) {
	var last string
	for range 2 {
		result, err := program(options{steps: 60, every: 20}).Run(t.Context(), launch.Goroutines())
		if err != nil || result.Done == nil || result.Done.Accuracy == nil || *result.Done.Accuracy < 0.3 {
			t.Fatalf("got %+v, %v", result, err)
		}
		if last != "" && last != result.Done.SHA256 {
			t.Errorf("got %s and %s", last, result.Done.SHA256)
		}
		last = result.Done.SHA256
	}
}

// Weights that do not fit the model are refused.
func TestScoreRefuses(t *testing.T) {
	for _, w := range []Weights{{}, {Params: [][]float32{{1}, {2}}}} {
		if _, err := new(evaluator).score(t.Context(), w); err == nil {
			t.Errorf("%v were scored", w)
		}
	}
}
