package compress_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/trainer/compress"
	"pgregory.net/rapid"
)

// own returns element i of the gradient of a rank in a step.
func own(rank, step, i int) float32 {
	return float32(math.Sin(float64(rank*7919+step*104729+i*31))) * float32(i%7+1)
}

// applied runs steps with error feedback at n ranks. For each rank it returns the total of the sums
// of all steps, and the coding error that is left.
func applied(t testing.TB, ranks, n, steps int, coding collective.Coding) (sums, rests [][]float32) {
	t.Helper()
	sums, rests = make([][]float32, ranks), make([][]float32, ranks)
	cluster.Run(t, ranks, func(ctx context.Context, c *collective.Comm) error {
		v, dst, sum := make([]float32, n), make([]float32, n), make([]float32, n)
		for step := range steps {
			for i := range v {
				v[i] += own(c.Rank(), step, i)
			}
			if err := collective.AllReduceCoded(ctx, c, dst, v, coding); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			for i, x := range dst {
				sum[i] += x
			}
		}
		sums[c.Rank()], rests[c.Rank()] = sum, v
		return nil
	})
	return sums, rests
}

// All ranks get the same bits. The total of the sums, plus the coding errors that are left at all
// ranks, is the sum of all gradients.
func TestErrorFeedbackConserves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ranks := rapid.IntRange(1, 5).Draw(rt, "ranks")
		n := rapid.SampledFrom([]int{1, 3, 700, 4500}).Draw(rt, "n")
		steps := rapid.IntRange(1, 6).Draw(rt, "steps")
		coding := must(t, rapid.SampledFrom(names()).Draw(rt, "coding"))
		sums, rests := applied(t, ranks, n, steps, coding)
		for i := range n {
			was, is, size := 0.0, float64(sums[0][i]), 1.0
			for rank := range ranks {
				is += float64(rests[rank][i])
				for step := range steps {
					was += float64(own(rank, step, i))
					size += math.Abs(float64(own(rank, step, i)))
				}
			}
			if math.Abs(was-is) > size*1e-5 {
				rt.Fatalf("%s at %d ranks: element %d: %v including the rest, it was %v", coding.Name(), ranks, i, is, was)
			}
		}
		for rank, sum := range sums {
			if !slices.EqualFunc(sum, sums[0], sameBits) {
				rt.Fatalf("%s: rank %d has other bits than rank 0", coding.Name(), rank)
			}
		}
	})
}

// The coding error that is left stays bounded, because each element is sent at some time.
func TestWhatIsLeftIsBounded(t *testing.T) {
	for _, name := range []string{"topk:0.01", "topk:0.01:2bit"} {
		leftIsBounded(t, must(t, name))
	}
}

func leftIsBounded(t *testing.T, coding collective.Coding) {
	const ranks, n = 3, 30000
	norm := func(steps int) float64 {
		_, rests := applied(t, ranks, n, steps, coding)
		total := 0.0
		for _, x := range rests[1] {
			total += float64(x) * float64(x)
		}
		return math.Sqrt(total)
	}
	// With a hundredth of the elements in each step, every element is sent within a hundred steps. The gradients resemble noise,
	// so a hundred of them add up to ten times one gradient.
	one, many := norm(1), norm(150)
	if many > 12*one {
		t.Errorf("%s: after 150 steps %v is left, after one %v", coding.Name(), many, one)
	}
}

func ExampleParse() {
	coding, err := compress.Parse("topk:0.02")
	if err != nil {
		fmt.Println(err)
		return
	}
	v := make([]float32, 100_000)
	v[3], v[70_000] = 5, -2
	code, sum := make([]byte, coding.Size(len(v))), make([]float32, len(v))
	coding.Encode(code, v)
	if err := coding.Add(sum, code); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(coding.Name(), len(code), sum[3], sum[70_000])
	// Output: topk:0.02 6393 5 -2
}
