package local

import "github.com/elrun/elrun/trainer"

// stepMap converts rounds to steps of ordinary training with the same samples, so that a schedule
// made for ordinary training can be used.
type stepMap struct {
	steps   int64 // local steps of a round
	perPass int64 // steps of ordinary training in a pass; the last round of a pass may be shorter
}

// newStepMap returns the stepMap for a configuration of ordinary training; steps is the number of
// local steps of a round.
func newStepMap(cfg trainer.Config, steps int) stepMap {
	return stepMap{steps: int64(steps), perPass: ceilDiv(int64(cfg.Samples), int64(cfg.GlobalBatch))}
}

// rounds returns the least number of rounds that cover the given number of steps of ordinary
// training, counted from the first step of the job.
func (s stepMap) rounds(steps int64) int64 {
	return steps/s.perPass*ceilDiv(s.perPass, s.steps) + ceilDiv(steps%s.perPass, s.steps)
}

// step returns the number of the step of ordinary training that corresponds to local step k of a
// round; all count from 1. A path of a short last round may have more local steps than the pass has
// steps left; the additional steps correspond to the last step of the pass.
func (s stepMap) step(round, k int64) int64 {
	perPass := ceilDiv(s.perPass, s.steps) // rounds
	pass, within := (round-1)/perPass, (round-1)%perPass
	return pass*s.perPass + min(within*s.steps+k, s.perPass)
}

// ceilDiv returns a / b, rounded up; a >= 0, b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
