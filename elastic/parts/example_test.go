package parts_test

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/parts"
	"github.com/elrun/elrun/testing/simnet"
)

// Each of 4 chunks of samples has a variable for each sample. A step adds the number of its chunk to it.
// The common state is the sum of all variables.
func ExampleNew() {
	ctx := context.Background()
	network := simnet.New(simnet.Config{})
	defer network.Close()
	self := elastic.Member{ID: "a"}
	g, err := elastic.Join(ctx, elastic.Config{Endpoint: network.Endpoint(self), Peers: []elastic.Member{self}}) // programs: launch.Init
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	p := parts.New[float64]([]int{10, 10, 10, 5}, parts.Options{Copies: 1})
	step, sum := int64(0), []float64{0}
	for t := range g.Steps(ctx, elastic.Vectors(&step, sum, p.Tag()), 3) {
		if _, err := p.Settle(ctx, t); err != nil {
			continue
		}
		more := []float64{0}
		for k := range p.Own() {
			next := p.Next(k)
			for i := range next {
				next[i] += float64(k)
				more[0] += float64(k)
			}
		}
		if p.Replicate(ctx) != nil || collective.AllReduce(ctx, t.Comm, more, more, collective.Sum[float64]) != nil {
			continue // the step is tried again
		}
		sum[0] += more[0]
		p.Commit()
		step++
	}
	if g.Err() == nil {
		fmt.Println(sum[0], p.Value(3))
	}
	// Output: 135 [9 9 9 9 9]
}
