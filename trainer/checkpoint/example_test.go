package checkpoint_test

import (
	"context"
	"fmt"
	"os"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/checkpoint"
	"github.com/elrun/elrun/transport/mem"
)

// A loop saves its state, and a later job goes on from there.
func ExampleNewState() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	fmt.Println(double(checkpoint.Config{Dir: dir, EverySteps: 2}, 5))
	fmt.Println(double(checkpoint.Config{Dir: dir, EverySteps: 2, Resume: dir, Log: func(format string, args ...any) {
		fmt.Println("resumed")
	}}, 8))
	// Output:
	// 32 <nil>
	// resumed
	// 256 <nil>
}

// double doubles a number in each step, and returns it after the given number of steps.
func double(c checkpoint.Config, steps int64) (float64, error) {
	ctx, self, network := context.Background(), elastic.Member{ID: "a"}, mem.NewNetwork()
	g, err := elastic.Join(ctx, elastic.Config{ // a program calls launch.Init instead
		Endpoint: elastic.Endpoint{Self: self, Network: network.Member(self.ID), Close: network.Close}, Peers: []elastic.Member{self}})
	if err != nil {
		return 0, err
	}
	defer g.Close()
	step, x := int64(0), []float64{1}
	state, err := checkpoint.NewState(g, c, &step, checkpoint.Tensor{Name: "x", Values: x})
	if err != nil {
		return 0, err
	}
	defer state.Close()
	for t := range g.Steps(ctx, state, steps) {
		if err := collective.Barrier(ctx, t.Comm); err != nil {
			continue
		}
		x[0] *= 2
		step++
	}
	return x[0], g.Err()
}
