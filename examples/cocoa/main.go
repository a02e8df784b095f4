// Cocoa trains a linear model on a table without a learning rate: a support vector machine, or ridge
// regression. It is an example of package elastic/parts. Each sample has a dual variable, which lives in
// the chunk of the sample. Chunks have an owner and copies, and move when peers join, leave and die.
//
//	cocoa
//	elrun -n 4 --name lines cocoa --data data/flights-200k.json     and from another terminal, besides kill -9 PID:
//	elrun scale lines 2
//
// The method is CoCoA+ (Ma and others, Adding vs. averaging in distributed primal-dual optimization,
// 2015): each peer improves the dual variables of its samples by coordinate ascent (SDCA), as if the
// others' changes had the direction of its own, and the changes of all peers are added. Chicle (Kaufmann
// and others, 2019) moves such chunks between the nodes of an elastic cluster. With --tasks T each peer
// is T tasks that do not see each other's changes within a round, as in systems that are elastic by
// having many small tasks; the number of rounds shows what that costs.
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
)

func main() {
	o := Options{}
	data := flag.String("data", "", "read the flights of vega-datasets from `FILE`; without it samples are generated")
	samples := flag.Int("samples", 1<<15, "generate `N` samples")
	dim := flag.Int("dim", 64, "generate samples of `N` features")
	flag.StringVar(&o.Loss, "loss", "svm", "`LOSS`: svm or ridge")
	flag.Float64Var(&o.Lambda, "lambda", 0, "weight of the regulariser; 0 means 1 / samples")
	flag.IntVar(&o.Chunk, "chunk", 256, "samples of a chunk")
	flag.IntVar(&o.Copies, "copies", 1, "copies of the dual variables of a chunk at other peers")
	flag.IntVar(&o.Tasks, "tasks", 1, "tasks of a peer")
	flag.Int64Var(&o.Rounds, "rounds", 1000, "end after `N` rounds at the latest")
	flag.Float64Var(&o.Gap, "gap", 1e-3, "end when the duality gap is at most `G`")
	flag.DurationVar(&o.Pace, "pace", 0, "`time` that a round takes at least")
	flag.BoolVar(&o.Check, "check", false, "check in each round that w is the sum of all chunks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o, *data, *samples, *dim)
	stop()
	switch {
	case errors.Is(err, elastic.ErrLeft), errors.Is(err, elastic.ErrFinished):
		fmt.Fprintln(os.Stderr, "cocoa:", err) // no failure: elrun does not count the status
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Fprintln(os.Stderr, "cocoa:", err)
		os.Exit(launch.StatusQuorum)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cocoa:", err)
		os.Exit(1)
	}
}

// run joins the job, trains, reports the result and leaves.
func run(ctx context.Context, o Options, data string, samples, dim int) (err error) {
	if err := o.check(samples, dim); err != nil {
		return err
	}
	table := Generate(samples, dim)
	if data != "" {
		if table, err = ReadFlights(data); err != nil {
			return err
		}
	}
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	s, err := NewSolver(table, o)
	if err != nil {
		return err
	}
	if err := s.Train(ctx, g); err != nil {
		return err
	}
	fmt.Println(s)
	return g.Report(s.Result())
}

// check returns an error for options that cannot be used.
func (o Options) check(samples, dim int) error {
	for _, v := range []struct {
		ok   bool
		flag string
	}{
		{o.Loss == "svm" || o.Loss == "ridge", "--loss: want svm or ridge"},
		{o.Lambda >= 0, "--lambda: want 0 or more"},
		{o.Chunk > 0, "--chunk: want 1 sample or more"},
		{o.Copies >= 0, "--copies: want 0 or more"},
		{o.Tasks > 0, "--tasks: want 1 or more"},
		{o.Rounds >= 0, "--rounds: want 0 or more"},
		{samples > 0 && samples <= 1<<24 && dim > 0 && dim <= 1<<12, "--samples and --dim: want 1 to 16777216, and 1 to 4096"},
	} {
		if !v.ok {
			return errors.New(v.flag)
		}
	}
	return nil
}
