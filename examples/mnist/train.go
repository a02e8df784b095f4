package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/idx"
)

// train joins the job, trains and leaves. Where elrun is not there to show progress
// and the result, they go to out.
func train(ctx context.Context, o options, out io.Writer) error {
	group, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	// What goes wrong on leaving changes nothing for a job that is finished, and is
	// only a consequence where it is not.
	defer group.Close()
	trainSet, testSet, err := load(o.Data)
	if err != nil {
		return err
	}
	model, err := o.network(trainSet)
	if err != nil {
		return err
	}
	cfg := o.config(trainSet.Len())
	cfg.Evaluate = func(ctx context.Context, part, parts int) (trainer.Score, error) {
		n := testSet.Len()
		return model.Evaluate(ctx, testSet, n*part/parts, n*(part+1)/parts)
	}
	if !launch.Launched() {
		cfg.OnStep = func(r trainer.StepReport) { showStep(out, r) }
		cfg.Done = func(r trainer.Result) { fmt.Fprintln(out, r) }
	}
	return trainer.Run(ctx, group, model, cfg)
}

// load reads both parts of MNIST, or says how to get them.
func load(dir string) (trainSet, testSet *idx.Set, err error) {
	trainSet, err = idx.Load(dir, "train", classes)
	if err == nil {
		testSet, err = idx.Load(dir, "t10k", classes)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w; fetch MNIST with \"make data\", or name its folder with --data", err)
	}
	if err != nil {
		return nil, nil, err
	}
	if trainSet.Count == 0 || trainSet.Rows != testSet.Rows || trainSet.Cols != testSet.Cols {
		return nil, nil, fmt.Errorf("%s: %d training images of %d x %d, test images of %d x %d", dir,
			trainSet.Count, trainSet.Rows, trainSet.Cols, testSet.Rows, testSet.Cols)
	}
	return trainSet, testSet, nil
}

// showStep writes a line for every tenth of the job.
func showStep(out io.Writer, r trainer.StepReport) {
	if r.Step*10/r.Of != (r.Step-1)*10/r.Of {
		fmt.Fprintf(out, "step %d/%d loss=%.4f\n", r.Step, r.Of, r.Loss)
	}
}
