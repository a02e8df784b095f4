package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/checkpoint"
	"github.com/elrun/elrun/trainer/idx"
)

// train joins the job, trains and leaves. Scores (--eval-every) are written to out, and messages to
// the user during training to errs. The progress and the result are shown by elrun, and without
// elrun by package launch.
func train(ctx context.Context, o options, out, errs io.Writer) error {
	group, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	// An error of leaving is irrelevant: the job is finished, or an earlier error is the cause.
	defer group.Close()
	trainSet, testSet, err := open(o.Data)
	if err != nil {
		return err
	}
	defer trainSet.Close() // only read, so nothing can be lost
	defer testSet.Close()
	network, err := o.network(trainSet)
	if err != nil {
		return err
	}
	cfg := o.config(trainSet.Len())
	if cfg.DataHash, err = hashOf(trainSet, testSet); err != nil {
		return err
	}
	cfg.Settings = o.settings(cfg)
	cfg.Evaluate = func(ctx context.Context, part, parts int) (trainer.Score, error) {
		n := testSet.Len()
		return network.Evaluate(ctx, testSet, n*part/parts, n*(part+1)/parts)
	}
	cfg.Hooks.Log = logTo(errs)
	model := network.Model()
	if o.Pace > 0 || len(o.Slow) > 0 {
		p := newPacer(ctx, o)
		model, cfg.Hooks.OnBegin, cfg.Hooks.OnTrial = p.slowed(model), p.begin, p.begin
	}
	if model, cfg, err = o.wrap(model, cfg); err != nil {
		return err
	}
	if o.EvalEvery == 0 {
		err = trainer.Run(ctx, group, model, cfg)
	} else {
		err = evaluating(ctx, trainer.New(group, model, cfg), o.EvalEvery, cfg.Evaluate, out)
	}
	if errors.Is(err, checkpoint.ErrForeign) {
		return fmt.Errorf("%w (--checkpoint DIR, --resume DIR)", err)
	}
	if err != nil {
		return err
	}
	return save(o.Save, network.Params())
}

// evaluating trains, and prints the score on the test set at regular intervals of steps.
func evaluating(ctx context.Context, run *trainer.Training, every int64, evaluate evaluation, out io.Writer) error {
	for p := range run.Points(ctx, trainer.Interval(every)) {
		rank, ranks := p.Rank()
		part, err := evaluate(ctx, rank, ranks)
		if err != nil {
			p.Fail(err)
			continue
		}
		score, err := p.Sum(part)
		if err == nil && rank == 0 {
			fmt.Fprintf(out, "step %d/%d accuracy=%.4f test loss=%.4f\n", p.Step, p.Of, score.Accuracy(), score.MeanLoss())
		}
	}
	return run.Err()
}

// evaluation is a function that returns the score on one of several parts of the test set.
type evaluation = func(ctx context.Context, part, parts int) (trainer.Score, error)

// hashOf returns a hash of the data's content, the same for compressed and uncompressed files.
func hashOf(sets ...*idx.Set) (string, error) {
	h := xxhash.New()
	for _, s := range sets {
		fmt.Fprintln(h, s.Count, s.Rows, s.Cols) // never fails
		if _, err := s.WriteTo(h); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

// logTo returns a function that writes lines to errs. It is safe for concurrent use.
func logTo(errs io.Writer) func(line string) {
	var mu sync.Mutex
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(errs, "mnist: %s\n", line)
	}
}

// save writes the parameters to path, unless path is empty. Each peer that finishes writes a file,
// as the peers may be on different hosts. On one host the files replace each other; their content
// is equal.
func save(path string, params []trainer.Param) error {
	if path == "" {
		return nil
	}
	tensors := make([]checkpoint.Tensor, len(params))
	for i, p := range params {
		tensors[i] = checkpoint.Tensor{Name: p.Name, Shape: p.Shape, Data: p.Data}
	}
	return checkpoint.WriteSafetensors(path, tensors, map[string]string{"format": "elrun"})
}

// open opens both parts of MNIST. Its error says how to get missing files. The caller closes the
// sets.
func open(dir string) (trainSet, testSet *idx.Set, err error) {
	trainSet, err = idx.Open(dir, "train", classes)
	if err == nil {
		testSet, err = idx.Open(dir, "t10k", classes)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w; fetch MNIST with \"make data\", or name its folder with --data", err)
	case err == nil && (trainSet.Count == 0 || trainSet.Rows != testSet.Rows || trainSet.Cols != testSet.Cols):
		err = fmt.Errorf("%s: %d training images of %d x %d pixels, test images of %d x %d: want at least one, and the same size in both files", dir,
			trainSet.Count, trainSet.Rows, trainSet.Cols, testSet.Rows, testSet.Cols)
	}
	if err == nil {
		return trainSet, testSet, nil
	}
	for _, s := range []*idx.Set{trainSet, testSet} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return nil, nil, err
}
