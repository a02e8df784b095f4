package elastic_test

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mem"
)

// alone returns a group of one. Programs get theirs from launch.Init.
func alone(ctx context.Context) (*elastic.Group, error) {
	network, self := mem.NewNetwork(), elastic.Member{ID: "alone"}
	return elastic.Join(ctx, elastic.Config{Endpoint: network.Endpoint(self), Peers: []elastic.Member{self}})
}

// A whole training loop: it finds the mean of the samples 0 to 9. With more peers each has its
// part of the samples, and peers may come, go and die.
func ExampleGroup_Steps() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	step, mean := int64(0), []float64{0}
	for t := range g.Steps(ctx, elastic.Vectors(&step, mean), 50) {
		sum := []float64{0}
		lo, hi := t.Part(10)
		for i := lo; i < hi; i++ {
			sum[0] += float64(i) - mean[0]
		}
		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
			continue
		}
		mean[0] += 0.5 * sum[0] / 10
		step++
	}
	fmt.Printf("%.3f after %d steps: %v\n", mean[0], step, g.Err())
	// Output: 4.500 after 50 steps: <nil>
}

// A loop ends early, at the same step for all, where one peer wants it.
func ExampleTurn_Stop() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	step, x := int64(0), []float64{1}
	for t := range g.Steps(ctx, elastic.Vectors(&step, x), 1000) {
		if err := collective.Barrier(ctx, t.Comm); err != nil {
			continue
		}
		x[0] /= 2
		step++
		if x[0] < 0.01 {
			t.Stop()
		}
	}
	fmt.Println(step, g.Err())
	// Output: 7 <nil>
}

// A loop whose body forgets to count its steps ends with an error that says so.
func ExampleGroup_Err() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	step, x := int64(0), []float64{1}
	for range g.Steps(ctx, elastic.Vectors(&step, x), 10) {
		x[0] /= 2
	}
	fmt.Println(g.Err())
	// Output: elastic: a turn of the loop neither failed nor committed step 1: let the state count the step after the last call, or call Turn.Fail with the reason
}
