package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

const (
	stepsVariable = "E2E_STEPS"
	// eachCost is the time for a microbatch in the role fixed. fixedTask is the number of microbatches in a step.
	eachCost, fixedTask = 250 * time.Microsecond, 128
)

// fixedCost returns the time that a peer spends in a step before its first microbatch in the role fixed.
func fixedCost(index int) time.Duration {
	return []time.Duration{40, 48, 56, 44}[index] * time.Millisecond
}

// costly is a model of one number. It takes a long time at the start of each step, and a short time for each microbatch.
type costly struct {
	param []float32
	due   time.Time // planned end of the last microbatch
	begun bool      // the step has computed a microbatch
}

// begin is called before each step.
func (c *costly) begin(int64) { c.begun = false }

// trained returns the model for trainer.Run. After a late timer the next sleep of the step is
// shorter.
func (c *costly) trained() trainer.Model {
	p := trainer.Param{Name: "x", Shape: []int{1}, Data: c.param}
	return trainer.Model{Params: []trainer.Param{p}, Gradient: func(b *trainer.Batch) (float64, error) {
		if !c.begun {
			c.begun, c.due = true, time.Now().Add(fixedCost(index()))
		}
		c.due = c.due.Add(eachCost)
		<-time.After(time.Until(c.due))
		n := float32(len(b.Samples()))
		b.Add(0, []float32{n})
		return float64(n), nil
	}}
}

// fixedCosts is the role fixed. It trains a costly model.
func fixedCosts(ctx context.Context) error {
	steps, err := strconv.ParseInt(os.Getenv(stepsVariable), 10, 64)
	if err != nil {
		return err
	}
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	m := &costly{param: make([]float32, 1)}
	return errors.Join(trainer.Run(ctx, g, m.trained(), trainer.Config{
		Samples: fixedTask * int(steps), GlobalBatch: fixedTask, Microbatch: 1, Steps: steps, Seed: 1,
		Optimizer: optim.SGD{}, Schedule: optim.Constant(0.001), Balancing: trainer.Balancing{Steal: trainer.StealOff}, Hooks: trainer.Hooks{OnBegin: m.begin},
	}), g.Close())
}

// If most of a step's time does not depend on the share, shares come near the best within a few
// steps, and then rarely change.
func (tr *trial) fixed(t *testing.T) error {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := tr.run(t, 4, slices.Concat(tr.wrapper, []string{self}), roleVariable+"=fixed", stepsVariable+"="+strconv.Itoa(pick(30, 200)))
	r.check(t, "")
	for _, s := range r.told {
		t.Logf("shares %v, %s", s.New, s.Reason)
	}
	costs := make([]loadbal.Cost, 4)
	for i := range costs {
		costs[i] = loadbal.Cost{Fixed: int64(fixedCost(i)), Each: int64(eachCost), Min: 1}
	}
	best := loadbal.Optimum(costs, fixedTask)
	near := func(i int) bool { return excess(costs, fixedTask, taking(costs, r.shares(i))) <= 5 }
	after, changes, returns := slices.IndexFunc(r.full(0), near), r.changes(settled), r.returns(settled)
	t.Logf("near the best shares %v after %d steps, then changed %d times in %d steps, back to earlier ones %d times, at last %v; steps of %.1f ms (median), in the best case %.1f ms",
		best, after, changes, len(r.steps[0])-settled, returns, r.shares(len(r.steps[0])-1), r.stepMS(settled), float64(loadbal.Slowest(costs, best))/1e6)
	if long() && (after < 0 || after > 5 || returns > 0 || changes > len(r.steps[0])/20) {
		return fmt.Errorf("shares came near the best after %d steps, and changed in %d of %d steps, %d times back", after, changes, len(r.steps[0]), returns)
	}
	return nil
}

// returns counts the full steps, from a step on, in which the shares change back to shares of an
// earlier step.
func (t *trained) returns(from int) (n int) {
	full := t.full(from)
	for k := 2; k < len(full); k++ {
		now := t.shares(full[k])
		was := func(i int) bool { return slices.Equal(t.shares(i), now) }
		if !was(full[k-1]) && slices.ContainsFunc(full[:k-1], was) {
			n++
		}
	}
	return n
}
