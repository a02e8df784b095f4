package ring_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/ring"
)

// bruteOrder is the slow twin of ring.Order: it looks at all orders, in lexicographic
// order, and takes the first of the best.
func bruteOrder(cost [][]int64, host []int) []int {
	var best []int
	var worst, total int64
	var visit func(order []int)
	visit = func(order []int) {
		if len(order) < len(cost) {
			for next := range cost {
				if !slices.Contains(order, next) {
					visit(append(slices.Clone(order), next))
				}
			}
			return
		}
		if w, s := ring.Bottleneck(cost, order); together(order, host) &&
			(best == nil || w < worst || w == worst && s < total) {
			best, worst, total = order, w, s
		}
	}
	visit([]int{0})
	return best
}

// together reports whether the ranks of each host are next to each other in a ring:
// there are as many changes of host as hosts.
func together(order, host []int) bool {
	hosts, changes := map[int]bool{}, 0
	for i, rank := range order {
		hosts[host[rank]] = true
		if host[rank] != host[order[(i+1)%len(order)]] {
			changes++
		}
	}
	return changes == len(hosts) || len(hosts) == 1
}

// drawCosts draws a matrix of n ranks, some links of which may be unknown. Few values make
// many orders equally good.
func drawCosts(t *rapid.T, n int) [][]int64 {
	most := rapid.SampledFrom([]int64{1, 3, 100, 1 << 40}).Draw(t, "most")
	cost := make([][]int64, n)
	for i := range cost {
		cost[i] = rapid.SliceOfN(rapid.Int64Range(0, most), n, n).Draw(t, "row")
	}
	return cost
}

// Up to seven ranks here, and eight below, the order is that of brute force, ties included.
func TestOrderTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		cost := drawCosts(t, n)
		host := rapid.SliceOfN(rapid.IntRange(0, 3), n, n).Draw(t, "host")
		if got, want := ring.Order(cost, host), bruteOrder(cost, host); !slices.Equal(got, want) {
			t.Fatalf("%v on hosts %v: %v, want %v", cost, host, got, want)
		}
	})
}

func TestOrderOfEight(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		cost := matrix(8, func(_, _ int) int64 { return random.Int64N(50) })
		host := []int{0, 1, 2, 2, 3, 4, 0, 5}
		if got, want := ring.Order(cost, host), bruteOrder(cost, host); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", cost, got, want)
		}
	}
}

// matrix makes costs by a function of the two ranks.
func matrix(n int, cost func(from, to int) int64) [][]int64 {
	m := make([][]int64, n)
	for i := range m {
		m[i] = make([]int64, n)
		for j := range m[i] {
			if i != j {
				m[i][j] = cost(i, j)
			}
		}
	}
	return m
}

// alone puts each rank on a host of its own.
func alone(n int) []int { return ring.Chunks(n, n)[:n] }

func TestOrderCases(t *testing.T) {
	unknown := func(int, int) int64 { return 0 }
	tests := map[string]struct {
		cost [][]int64
		host []int
		want []int
	}{
		"nobody":        {nil, nil, nil},
		"one":           {matrix(1, unknown), []int{7}, []int{0}},
		"two":           {matrix(2, unknown), []int{0, 1}, []int{0, 1}},
		"nothing known": {matrix(5, unknown), alone(5), []int{0, 1, 2, 3, 4}},
		"hosts":         {matrix(6, unknown), []int{0, 1, 0, 1, 0, 1}, []int{0, 1, 3, 5, 2, 4}},
		"a direction": {matrix(3, func(from, to int) int64 {
			if from == 0 && to == 1 {
				return 10
			}
			return 1
		}), alone(3), []int{0, 2, 1}},
		"eleven": {matrix(12, unknown), []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, []int{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ring.Order(test.cost, test.host); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Of any size the result is a permutation that begins with 0 and keeps hosts together, is
// not worse than ranks in their own order, and comes again.
func TestOrderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(9, 30).Draw(t, "n")
		cost := drawCosts(t, n)
		host := alone(n)
		if rapid.Bool().Draw(t, "shared") {
			host = rapid.SliceOfN(rapid.IntRange(0, n/2), n, n).Draw(t, "host")
		}
		order := ring.Order(cost, host)
		if sorted := slices.Sorted(slices.Values(order)); order[0] != 0 || !slices.Equal(sorted, alone(n)) || !together(order, host) {
			t.Fatalf("%v is no order of hosts %v", order, host)
		}
		if worst, _ := ring.Bottleneck(cost, order); worst < ring.Bound(cost, host) {
			t.Fatalf("the slowest link costs %d, below the bound %d", worst, ring.Bound(cost, host))
		}
		if again := ring.Order(cost, host); !slices.Equal(order, again) {
			t.Fatalf("%v, then %v", order, again)
		}
	})
}

// Where a third of the links is slow, there is a ring without them, and the search finds it.
func TestOrderAvoidsSlowLinks(t *testing.T) {
	for _, n := range []int{11, 12, 16, 40, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for seed := range uint64(10) {
				cost := patchy(n, seed)
				if worst, _ := ring.Bottleneck(cost, ring.Order(cost, alone(n))); worst >= 100 {
					t.Errorf("seed %d: the slowest link costs %d", seed, worst)
				}
			}
		})
	}
}

// patchy has links of which one in three is ten times as slow as the others, at random.
func patchy(n int, seed uint64) [][]int64 {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	return matrix(n, func(_, _ int) int64 {
		c := 10 + random.Int64N(3)
		if random.IntN(3) == 0 {
			c *= 10
		}
		return c
	})
}

func ExampleOrder() {
	// The links between ranks 0 and 1 take ten times as long as the others.
	cost := [][]int64{{0, 50, 5, 5}, {50, 0, 5, 5}, {5, 5, 0, 5}, {5, 5, 5, 0}}
	order := ring.Order(cost, []int{0, 1, 2, 3})
	slowest, _ := ring.Bottleneck(cost, order)
	fmt.Println(order, slowest)
	// Output: [0 2 1 3] 5
}

func BenchmarkOrder(b *testing.B) {
	for _, n := range []int{8, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cost := patchy(n, 1)
			for b.Loop() {
				ring.Order(cost, alone(n))
			}
		})
	}
}
