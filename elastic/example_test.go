package elastic_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mem"
)

// alone returns a group of one member. Programs get a group from launch.Init.
func alone(ctx context.Context) (*elastic.Group, error) {
	network, self := mem.NewNetwork(), elastic.Member{ID: "alone"}
	return elastic.Join(ctx, elastic.Config{Endpoint: network.Endpoint(self), Peers: []elastic.Member{self}})
}

// A group of two in one process. Programs call launch.Init, which makes the Config.
func ExampleJoin() {
	ctx := context.Background()
	network := mem.NewNetwork()
	members := []elastic.Member{{ID: "a", Index: 0}, {ID: "b", Index: 1}}
	var all sync.WaitGroup
	for _, self := range members {
		all.Go(func() {
			g, err := elastic.Join(ctx, elastic.Config{Endpoint: network.Endpoint(self), Peers: members})
			if err != nil {
				fmt.Println(err)
				return
			}
			defer g.Close()
			s, err := g.Sessions().Next(ctx, 0)
			if err == nil && s.Rank == 0 {
				fmt.Println(len(s.View.Members), "members in view", s.View.Epoch)
			}
			if err == nil {
				err = collective.Barrier(ctx, s.Comm)
			}
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	// Output: 2 members in view 1
}

// A complete training loop: it finds the mean of the samples 0 to 9. With several peers, each of
// them computes a part of the samples, and peers may join, leave and die.
func ExampleGroup_Steps() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	step, mean := int64(0), []float64{0}
	for t := range g.Steps(ctx, elastic.Vectors(&step, &mean), 50) {
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

// A loop ends early, at the same step at all peers, if one peer asks for it.
func ExampleTurn_Stop() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	step, x := int64(0), []float64{1}
	for t := range g.Steps(ctx, elastic.Vectors(&step, &x), 1000) {
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

// A value that the peers report is in the progress line, elrun status and the event log. A mean over
// samples is a sum of parts, as the peers may have different numbers of samples.
func ExampleTurn_Report() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	const samples = 4
	step, w := int64(0), []float64{0}
	for t := range g.Steps(ctx, elastic.Vectors(&step, w), 10) {
		lo, hi := t.Part(samples)
		sum, loss := []float64{0}, 0.0
		for i := lo; i < hi; i++ {
			miss := w[0] - float64(i)
			sum[0], loss = sum[0]+miss, loss+miss*miss
		}
		t.Report("loss", loss/samples, elastic.ReportSum)
		if err := collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[float64]); err != nil {
			continue
		}
		w[0] -= sum[0] / samples
		step++
	}
	fmt.Println(w, g.Err())
	// Output: [1.5] <nil>
}

// A loop whose body forgets to count its steps ends with an error that describes the mistake.
func ExampleGroup_Err() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	step, x := int64(0), []float64{1}
	for range g.Steps(ctx, elastic.Vectors(&step, &x), 10) {
		x[0] /= 2
	}
	fmt.Println(g.Err())
	// Output: elastic: a turn of the loop neither failed nor committed step 1: let the state count the step after the last call, or call Turn.Fail with the reason
}

// handOver saves a state and loads the copy into another state, as for a newcomer.
func handOver(to, from elastic.State) error {
	var b bytes.Buffer
	if err := from.Save(&b); err != nil {
		return err
	}
	return to.Load(&b)
}

// A state of slices. As they are given by their addresses, the program may replace them.
func ExampleVectors() {
	step, weights, counts := int64(7), []float32{1, 2}, []int64{3}
	var step2 int64
	weights2, counts2 := make([]float32, 2), make([]int64, 1)
	state := elastic.Vectors(&step, &weights, &counts)
	weights, step = []float32{4, 5}, step+1
	err := handOver(elastic.Vectors(&step2, &weights2, &counts2), state)
	fmt.Println(step2, weights2, counts2, err)
	// Output: 8 [4 5] [3] <nil>
}

// A state of values that marshal themselves, such as mat.Dense or a source of random numbers.
func ExampleBinary() {
	step, random := int64(7), rand.NewPCG(1, 2)
	var step2 int64
	var random2 rand.PCG
	err := handOver(elastic.Binary(&step2, &random2), elastic.Binary(&step, random))
	fmt.Println(step2, random2.Uint64() == random.Uint64(), err)
	// Output: 7 true <nil>
}

// A state of any variables without maps.
func ExampleGob() {
	type model struct {
		Weights []float32
		Name    string
	}
	step, m := int64(7), model{Weights: []float32{1, 2}, Name: "line"}
	var step2 int64
	var m2 model
	err := handOver(elastic.Gob(&step2, &m2), elastic.Gob(&step, &m))
	fmt.Println(step2, m2, err)
	// Output: 7 {[1 2] line} <nil>
}

// The loop below Steps: sessions follow one another, and a failed step is tried again in the next
// session.
func ExampleSessions_Next() {
	ctx := context.Background()
	g, err := alone(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	step, x := int64(0), []float64{0}
	g.Sessions().Hold(elastic.Vectors(&step, &x), nil)
	for epoch := uint64(0); step < 3; {
		s, err := g.Sessions().Next(ctx, epoch)
		if err != nil {
			fmt.Println(err)
			return
		}
		epoch = s.View.Epoch
		for left := false; err == nil && !left && step < 3; {
			one := []float64{1}
			if err = collective.AllReduce(ctx, s.Comm, one, one, collective.Sum[float64]); err != nil {
				break // the next session tries this step again
			}
			x[0], step = x[0]+one[0], step+1
			if err = g.Sessions().Committed(step); err != nil {
				fmt.Println(err)
				return
			}
			left, err = s.Boundary(ctx)
		}
	}
	fmt.Println(step, x)
	// Output: 3 [3]
}
