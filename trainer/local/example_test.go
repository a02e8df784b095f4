package local_test

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/local"
	"github.com/elrun/elrun/trainer/optim"
	"github.com/elrun/elrun/transport/mem"
)

// A line is fitted to points by paths of ten local steps, with two paths in a round. Under "elrun -n 2" each of the two peers
// would compute one of them.
func ExampleWrap() {
	ctx := context.Background()
	self := elastic.Member{ID: "self"} // a program calls launch.Init instead
	group, err := elastic.Join(ctx, elastic.Config{Endpoint: mem.NewNetwork().Endpoint(self), Peers: []elastic.Member{self}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer group.Close()

	line := make([]float32, 2) // y = line[0] x + line[1]
	model := trainer.Model{
		Params: []trainer.Param{{Name: "line", Shape: []int{2}, Data: line}},
		Gradient: func(b *trainer.Batch) (loss float64, err error) {
			g := b.Grad(0)
			for _, i := range b.Samples() {
				x := float32(i)/50 - 1
				miss := line[0]*x + line[1] - (3*x + 2) // the points lie on 3x + 2
				g[0], g[1] = g[0]+miss*x, g[1]+miss
				loss += float64(miss) * float64(miss) / 2
			}
			return loss, nil
		},
	}
	cfg := trainer.Config{
		Samples: 100, GlobalBatch: 10, Microbatch: 5, Passes: 40,
		Optimizer: optim.SGD{}, Schedule: optim.Constant(0.1),
		Hooks: trainer.Hooks{Done: func(r trainer.Result) { fmt.Println(r.Steps, "rounds") }},
	}
	model, cfg, err = local.Wrap(model, cfg, local.Config{
		Steps: 10,
		Outer: optim.SGD{Momentum: 0.9, Nesterov: true}, Rate: optim.Constant(0.7), // DiLoCo
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := trainer.Run(ctx, group, model, cfg); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("y = %.1f x + %.1f\n", line[0], line[1])
	// Output:
	// 40 rounds
	// y = 3.0 x + 2.0
}
