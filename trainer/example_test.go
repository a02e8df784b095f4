package trainer_test

import (
	"context"
	"fmt"
	"math"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/optim"
	"github.com/elrun/elrun/transport/mem"
)

// line returns a model with two numbers that fits the line y = 1 + 2 x. A sample is a point on the line.
func line() trainer.Model {
	w := trainer.Param{Name: "w", Shape: []int{2}, Data: make([]float32, 2)}
	return trainer.Model{
		Params: []trainer.Param{w},
		Gradient: func(b *trainer.Batch) (loss float64, err error) {
			grad := b.Grad(0)
			for _, i := range b.Samples() {
				x := float32(i%10) / 10
				miss := w.Data[0] + w.Data[1]*x - (1 + 2*x)
				grad[0] += 2 * miss
				grad[1] += 2 * miss * x
				loss += float64(miss) * float64(miss)
			}
			return loss, nil
		},
	}
}

// groupOfOne returns a group of one process. Programs call launch.Init instead.
func groupOfOne(ctx context.Context) (*elastic.Group, error) {
	self := elastic.Member{ID: "self"}
	return elastic.Join(ctx, elastic.Config{Endpoint: mem.NewNetwork().Endpoint(self), Peers: []elastic.Member{self}})
}

// job returns the configuration of the examples.
func job(passes int) trainer.Config {
	return trainer.Config{Samples: 100, GlobalBatch: 20, Passes: passes, Optimizer: optim.SGD{}, Schedule: optim.Constant(0.3)}
}

// A model is a struct with its parameters and a function that adds up gradients.
func ExampleRun() {
	ctx := context.Background()
	group, err := groupOfOne(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer group.Close()
	model := line()
	if err := trainer.Run(ctx, group, model, job(40)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("y = %.1f + %.1f x\n", model.Params[0].Data[0], model.Params[0].Data[1])
	// Output: y = 1.0 + 2.0 x
}

// The fields of Config that all trainings need are at the top. The other settings are in structs,
// whose zero values are the defaults.
func ExampleConfig() {
	ctx := context.Background()
	group, err := groupOfOne(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer group.Close()
	err = trainer.Run(ctx, group, line(), trainer.Config{
		Samples: 100, GlobalBatch: 20, Passes: 40,
		Optimizer: optim.SGD{}, Schedule: optim.Constant(0.3),
		Gradients: trainer.Gradients{Exact: true},
		Balancing: trainer.Balancing{Policy: "equal"},
		Hooks: trainer.Hooks{
			OnStep: func(r trainer.StepReport) {
				if r.Step%100 == 0 {
					fmt.Printf("step %d of %d\n", r.Step, r.Of)
				}
			},
			Done: func(r trainer.Result) { fmt.Println(r.Steps, "steps") },
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 100 of 200
	// step 200 of 200
	// 200 steps
}

// The batch grows when the gradients of the samples point in different directions. The job then takes fewer
// steps; schedules count those of the first batch.
func ExampleGrowth() {
	ctx := context.Background()
	group, err := groupOfOne(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer group.Close()
	// The parameter becomes the mean of the numbers 0 to 9, from which the single numbers differ more and
	// more, compared to the distance of the parameter.
	w := trainer.Param{Name: "w", Shape: []int{1}, Data: []float32{20}}
	mean := trainer.Model{Params: []trainer.Param{w}, Gradient: func(b *trainer.Batch) (loss float64, err error) {
		for _, i := range b.Samples() {
			miss := w.Data[0] - float32(i%10)
			b.Grad(0)[0] += miss
			loss += float64(miss) * float64(miss)
		}
		return loss, nil
	}}
	cfg := job(40)
	cfg.GlobalBatch, cfg.Microbatch = 5, 1
	cfg.Growth = trainer.Growth{Max: 50, Rate: trainer.GrowRoot}
	cfg.Schedule = optim.Cosine(0.1, 0, cfg.TotalSteps())
	batch := cfg.GlobalBatch
	cfg.Hooks.OnStep = func(r trainer.StepReport) {
		if r.Samples > batch {
			batch = r.Samples
			fmt.Println("the batch has grown to", batch)
		}
	}
	cfg.Hooks.Done = func(r trainer.Result) {
		fmt.Println("less than half of the steps:", 2*r.Steps < cfg.TotalSteps())
	}
	if err := trainer.Run(ctx, group, mean, cfg); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the batch has grown to 10
	// the batch has grown to 20
	// the batch has grown to 40
	// the batch has grown to 50
	// less than half of the steps: true
}

// Peers score the model together after each pass, and stop when the score is good enough.
func ExampleNew() {
	ctx := context.Background()
	group, err := groupOfOne(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer group.Close()
	model := line()
	run := trainer.New(group, model, job(40))
	for p := range run.Points(ctx, trainer.EveryPass) {
		lo, hi := p.Part(10) // this peer's part of a test set of ten samples
		part := trainer.Score{Samples: hi - lo}
		for i := lo; i < hi; i++ {
			x := float64(i) / 10
			if miss := float64(model.Params[0].Data[0]) + float64(model.Params[0].Data[1])*x - (1 + 2*x); math.Abs(miss) < 0.1 {
				part.Correct++
			}
		}
		score, err := p.Sum(part)
		if err != nil {
			continue // a peer was lost: this point comes again
		}
		if p.Keep(); score.Accuracy() == 1 {
			p.Stop()
		}
	}
	s := run.Status()
	fmt.Println(run.Err(), s.Stopped, s.Step < s.Of, s.Kept == s.Step, len(run.Kept()))
	// Output: <nil> true true true 1
}

// A wrapper copies a model and replaces its Gradient.
func ExampleBatch_Wrap() {
	model := line()
	gradient, calls := model.Gradient, 0
	model.Gradient = func(b *trainer.Batch) (float64, error) {
		return gradient(b.Wrap(func(g *trainer.Gate) {
			grad := g.Grad
			g.Grad = func(param int) []float32 { calls++; return grad(param) }
		}))
	}
	grad := [][]float32{make([]float32, 2)}
	loss, err := model.Accumulate(grad, []int{0, 5}, nil)
	fmt.Println(loss, err, grad, calls)
	// Output: 5 <nil> [[-6 -2]] 1
}

// A test of a model calls CheckModel.
func ExampleCheckModel() {
	model := line()
	fmt.Println(trainer.CheckModel(model, []int{3, 1, 4, 15}))
	model.Waits = true // a mistake: the model does not call Wait
	fmt.Println(trainer.CheckModel(model, []int{3, 1, 4, 15}))
	// Output:
	// <nil>
	// trainer: check model: samples [3 1]: the model did not call Wait(0, 0) for w: call it before each parameter is read, or leave Model.Waits unset
}

// Accumulate computes a gradient without a run: the sum over three samples.
func ExampleModel_Accumulate() {
	model := line()
	grad := [][]float32{make([]float32, 2)}
	loss, err := model.Accumulate(grad, []int{0, 5, 9}, nil)
	fmt.Printf("%.2f %.2f %v\n", loss, grad[0], err)
	// Output: 12.84 [-11.60 -7.04] <nil>
}

// A program that does not use Run makes batches itself, with a gate that receives the gradients.
func ExampleNewBatch() {
	model := line()
	sum := make([]float32, 2)
	b := trainer.NewBatch([][]int{{0, 5}}, trainer.Gate{Grad: func(int) []float32 { return sum }})
	loss, err := model.Gradient(b)
	fmt.Println(loss, sum, err)
	// Output: 5 [-6 -2] <nil>
}
