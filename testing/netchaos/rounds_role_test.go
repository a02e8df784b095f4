package netchaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/local"
	"github.com/elrun/elrun/trainer/optim"
)

// roundsVariable is the environment variable with the task of the role rounds, as JSON.
const roundsVariable = "NETCHAOS_ROUNDS"

// roundsTask configures a process with the role rounds. The process trains a model with Params
// parameters in Rounds rounds of Local local steps, each of which takes the time Pace.
type roundsTask struct {
	Params int
	Local  int
	Delay  bool
	Pace   time.Duration
	Rounds int64
}

// roundsResult is the output of the process, as JSON.
type roundsResult struct {
	Compute, Total []time.Duration // of each round except the first two and the last
	SHA256         string
}

// takeRounds is the role rounds.
func takeRounds(ctx context.Context) error {
	var o order
	var task roundsTask
	if err := json.Unmarshal([]byte(os.Getenv(orderVariable)), &o); err != nil {
		return fmt.Errorf("%s: %w", orderVariable, err)
	}
	if err := json.Unmarshal([]byte(os.Getenv(roundsVariable)), &task); err != nil {
		return fmt.Errorf("%s: %w", roundsVariable, err)
	}
	g, err := o.join(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	var got roundsResult
	cfg := trainer.Config{Samples: o.First * task.Local * 16, GlobalBatch: o.First, Microbatch: 1, Steps: task.Rounds * int64(task.Local),
		Balancing: trainer.Balancing{Policy: "equal"}, Optimizer: optim.SGD{}, Schedule: optim.Constant(1e-6),
		Hooks: trainer.Hooks{OnStep: func(r trainer.StepReport) {
			// From round 3 on, the connections' windows are large enough, and every round has a
			// previous round. The last round does not count, because no computation overlaps its
			// sums.
			if r.Step > 2 && r.Step < r.Of {
				got.Compute, got.Total = append(got.Compute, r.Compute), append(got.Total, r.Total)
			}
		}, Done: func(r trainer.Result) { got.SHA256 = r.SHA256 }}}
	p := &paced{pace: task.Pace, vary: 1}
	m, cfg, err := local.Wrap(p.slowed(bulky(task.Params)), cfg, local.Config{Steps: task.Local, Delay: task.Delay})
	if err != nil {
		return err
	}
	if err := trainer.Run(ctx, g, m, cfg); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}
