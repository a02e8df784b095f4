package loadbal_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/elrun/elrun/loadbal"
	"pgregory.net/rapid"
)

// greedy is the slow reference implementation of Optimum: it gives each microbatch to the rank that
// would finish that microbatch first.
func greedy(costs []loadbal.Cost, microbatches int) []int {
	shares := make([]int, len(costs))
	for r, c := range costs {
		shares[r] = c.Min
		microbatches -= c.Min
	}
	for range microbatches {
		best := -1
		for r, c := range costs {
			if c.Max > 0 && shares[r] >= c.Max {
				continue
			}
			if best < 0 || c.Time(shares[r]+1) < costs[best].Time(shares[best]+1) {
				best = r
			}
		}
		shares[best]++
	}
	return shares
}

// shortestLag returns the shortest time of a step, by brute force over all shares. It returns 1<<60 if no shares are inside the
// bounds.
func shortestLag(costs []loadbal.Cost, microbatches int) int64 {
	c, most := costs[0], microbatches
	if c.Max > 0 {
		most = min(most, c.Max)
	}
	if len(costs) == 1 {
		if microbatches < c.Min || microbatches > most {
			return 1 << 60
		}
		return c.Time(microbatches)
	}
	best := int64(1 << 60)
	for b := c.Min; b <= most; b++ {
		best = min(best, max(c.Time(b), shortestLag(costs[1:], microbatches-b)))
	}
	return best
}

// randomCosts returns random costs whose bounds leave room for all microbatches.
func randomCosts(rnd *rand.Rand, ranks, microbatches int) []loadbal.Cost {
	for {
		costs := make([]loadbal.Cost, ranks)
		least, most := 0, 0
		for r := range costs {
			costs[r] = loadbal.Cost{Fixed: rnd.Int64N(40), Each: 1 + rnd.Int64N(20), Min: rnd.IntN(2)}
			if rnd.IntN(3) == 0 {
				costs[r].Max = 1 + rnd.IntN(microbatches+1)
			}
			least += costs[r].Min
			if costs[r].Max == 0 {
				most += microbatches
			}
			most += costs[r].Max
		}
		if least <= microbatches && microbatches <= most {
			return costs
		}
	}
}

// In ten thousand small random cases Optimum has the step time that brute force finds, and the same
// shares as greedy.
func TestOptimumIsTheBest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		ranks, microbatches := 1+rnd.IntN(4), rnd.IntN(13)
		costs := randomCosts(rnd, ranks, microbatches)
		shares := loadbal.Optimum(costs, microbatches)
		if want := greedy(costs, microbatches); !slices.Equal(shares, want) {
			t.Fatalf("Optimum(%+v, %d) = %v, one by one %v", costs, microbatches, shares, want)
		}
		// Slowest and shortestLag count the fixed part of every rank, also of a rank whose share is
		// 0.
		if got, want := loadbal.Slowest(costs, shares), shortestLag(costs, microbatches); got != want {
			t.Fatalf("Optimum(%+v, %d) = %v takes %d, the best is %d", costs, microbatches, shares, got, want)
		}
	}
}

// The search is also exact for large times and shares, where its interpolation could go wrong.
func TestOptimumOfLargeCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		microbatches := rapid.IntRange(0, 2000).Draw(t, "microbatches")
		cost := rapid.Custom(func(t *rapid.T) loadbal.Cost {
			return loadbal.Cost{Fixed: rapid.Int64Range(0, 1<<40).Draw(t, "fixed"), Each: rapid.Int64Range(1, 1<<32).Draw(t, "each")}
		})
		costs := rapid.SliceOfN(cost, 1, 12).Draw(t, "costs")
		if got, want := loadbal.Optimum(costs, microbatches), greedy(costs, microbatches); !slices.Equal(got, want) {
			t.Fatalf("%v, one by one %v", got, want)
		}
	})
}

// If the bounds contradict the number of microbatches, they are ignored or exceeded in proportion. Impossible arguments panic.
func TestOptimumWithoutRoom(t *testing.T) {
	tight := []loadbal.Cost{{Each: 1, Min: 1, Max: 2}, {Each: 1, Min: 1, Max: 4}}
	if got := loadbal.Optimum(tight, 12); !slices.Equal(got, []int{4, 8}) {
		t.Errorf("twice as much as the bounds allow: %v", got)
	}
	if got := loadbal.Optimum([]loadbal.Cost{{Each: 3, Min: 1}, {Each: 2, Min: 1}, {Each: 1, Min: 1}}, 1); !slices.Equal(got, []int{0, 0, 1}) {
		t.Errorf("fewer microbatches than ranks: %v", got)
	}
	for name, f := range map[string]func(){
		"no ranks": func() { loadbal.Optimum(nil, 1) },
		"negative": func() { loadbal.Optimum(tight, -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// BenchmarkOptimum measures Optimum for ten thousand ranks.
func BenchmarkOptimum(b *testing.B) {
	rnd := rand.New(rand.NewPCG(5, 6))
	costs := make([]loadbal.Cost, 10_000)
	for r := range costs {
		costs[r] = loadbal.Cost{Fixed: rnd.Int64N(1 << 24), Each: 1<<20 + rnd.Int64N(1<<22), Min: 1}
	}
	for b.Loop() {
		loadbal.Optimum(costs, 320_000)
	}
}

func ExampleOptimum() {
	// The last of four ranks takes four times as long for a microbatch as the others.
	costs := []loadbal.Cost{{Each: 1}, {Each: 1}, {Each: 1}, {Each: 4}}
	fmt.Println(loadbal.Optimum(costs, 512))
	// Output: [158 158 157 39]
}
