package main

import (
	"context"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
)

// learner is the program of a peer.
type learner struct {
	options
	evaluate launch.Handle[Weights, Score]
}

// train trains until all steps are done. At regular intervals the peer with rank 0 sends the
// model to the evaluator, unless the previous call is still pending.
func (l learner) train(ctx context.Context, g *elastic.Group) error {
	data := images(trainSeed, trainImages)
	network, err := newNetwork(data)
	if err != nil {
		return err
	}
	model := slowed(network.Model(), l.pace)
	run := trainer.New(g, model, trainer.Config{
		Samples: data.Len(), GlobalBatch: 96, Microbatch: 8, Steps: l.steps, Gradients: trainer.Gradients{Exact: true},
		Optimizer: optim.SGD{}, Schedule: optim.Constant(0.1),
		Evaluate: func(ctx context.Context, part, parts int) (trainer.Score, error) {
			test := images(testSeed, testImages)
			return network.Evaluate(ctx, test, test.Len()*part/parts, test.Len()*(part+1)/parts)
		},
	})
	calls, cancel := context.WithCancel(ctx)
	defer cancel() // at the end, do not wait for a call that is still pending
	var asked *launch.Future[Score]
	for p := range run.Points(ctx, trainer.Interval(l.every)) {
		asked = tell(asked)
		if rank, _ := p.Rank(); rank == 0 && asked == nil {
			asked = l.evaluate.Go(calls, weightsOf(p.Step, model.Params))
		}
	}
	return run.Err()
}

// tell prints the score if the call has returned. Otherwise it returns the call, which is still pending.
func tell(asked *launch.Future[Score]) *launch.Future[Score] {
	if asked == nil {
		return nil
	}
	select {
	case <-asked.Done():
	default:
		return asked
	}
	if s, err := asked.Result(); err != nil {
		say("not scored: %v", err)
	} else {
		say("after step %d: accuracy %.4f on %d images", s.Step, s.Accuracy, s.Images)
	}
	return nil
}

// slowed returns a model whose calls take at least the given time.
func slowed(m trainer.Model, pace time.Duration) trainer.Model {
	if pace == 0 {
		return m
	}
	gradient := m.Gradient
	m.Gradient = func(b *trainer.Batch) (float64, error) {
		over := time.After(pace)
		loss, err := gradient(b)
		<-over
		return loss, err
	}
	return m
}
