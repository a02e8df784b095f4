package local

import (
	"testing"

	"github.com/elrun/elrun/trainer"
	"pgregory.net/rapid"
)

// stepMap agrees with a loop that counts step by step: the loop divides passes into rounds, and no
// round contains steps of two passes.
func TestPlaceIsCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := trainer.Config{Samples: rapid.IntRange(1, 60).Draw(t, "samples"), GlobalBatch: rapid.IntRange(1, 70).Draw(t, "global batch")}
		local := rapid.IntRange(1, 9).Draw(t, "local steps")
		p := newStepMap(cfg, local)
		perPass := (cfg.Samples + cfg.GlobalBatch - 1) / cfg.GlobalBatch
		round, k := int64(0), local
		for step := range 3 * perPass {
			if k == local || step%perPass == 0 {
				round, k = round+1, 0
			}
			k++
			if got := p.step(round, int64(k)); got != int64(step+1) {
				t.Fatalf("local step %d of round %d belongs to step %d, want %d", k, round, got, step+1)
			}
			if got := p.rounds(int64(step + 1)); got != round {
				t.Fatalf("%d steps are in %d rounds, want %d", step+1, got, round)
			}
		}
		if got := p.step(round, int64(local)); got != int64(3*perPass) {
			t.Errorf("past the end of a pass it is step %d, want the last one, %d", got, 3*perPass)
		}
	})
}
