// Command tensors trains a model whose parameters and data are tensors of gorgonia.org/tensor,
// alone or as one of the peers that elrun starts:
//
//	tensors
//	elrun -n 4 tensors --passes 10
//
// The model classifies points by which of three rings around the origin they are in. model.go has
// the model: the tensor library's matrix products, forward and backward. Package trainer/tensors
// turns tensors into parameters, which training then updates in place.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

func main() {
	passes := flag.Int("passes", 30, "passes over the `N` training samples")
	flag.Parse()
	// launch handles SIGTERM: it lets this peer finish the step and leave.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *passes)
	stop()
	switch {
	case err == nil || errors.Is(err, elastic.ErrLeft) || errors.Is(err, elastic.ErrFinished):
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Fprintln(os.Stderr, "tensors:", err)
		os.Exit(launch.StatusQuorum)
	default:
		fmt.Fprintln(os.Stderr, "tensors:", err)
		os.Exit(1)
	}
}

// run joins the job, trains and leaves.
func run(ctx context.Context, passes int) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer g.Close()
	return Train(ctx, g, passes, nil)
}

// Train trains a new model together with the other peers, and passes the result to done
// unless done is nil.
func Train(ctx context.Context, g *elastic.Group, passes int, done func(trainer.Result)) error {
	m, err := NewModel(points(trainingSet))
	if err != nil {
		return err
	}
	test := points(testSet)
	return trainer.Run(ctx, g, trainer.Model{Params: m.Params(), Gradient: m.Gradient}, trainer.Config{
		Samples:     len(m.data.Rings),
		GlobalBatch: 64,
		Passes:      passes,
		Optimizer:   optim.SGD{Momentum: 0.9},
		Schedule:    optim.Constant(0.1),
		Evaluate: func(_ context.Context, part, parts int) (trainer.Score, error) {
			n := len(test.Rings)
			return m.Score(test, part*n/parts, (part+1)*n/parts)
		},
		Hooks: trainer.Hooks{Done: done},
	})
}
