package ring_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/ring"
)

// bruteOrder is a slow reference for Order: it tries all orders, in lexicographic order, and
// returns the first of the best orders.
func bruteOrder(cost [][]int64, host, site []int) []int {
	var best []int
	var worst, total int64
	for order := range orders(len(cost)) {
		w, s := ring.Bottleneck(cost, order)
		if !together(order, host) || !together(order, site) {
			continue
		}
		if best == nil || w < worst || w == worst && s < total {
			best, worst, total = order, w, s
		}
	}
	return best
}

// together reports whether the ranks of each host are neighbours in a ring. If so, the host changes as often along the ring as
// there are hosts.
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

// drawCosts draws the costs between n ranks. Some links are unknown or impossible. Costs have few different values, so that many
// orders are equally good.
func drawCosts(t *rapid.T, n int) [][]int64 {
	most := rapid.SampledFrom([]int64{1, 3, 100, 1 << 40}).Draw(t, "most")
	least := rapid.SampledFrom([]int64{-1, 0}).Draw(t, "least")
	cost := make([][]int64, n)
	for i := range cost {
		cost[i] = rapid.SliceOfN(rapid.Int64Range(least, most), n, n).Draw(t, "row")
	}
	return cost
}

// In random cases with up to six ranks, Order returns the same order as bruteOrder, even if several
// orders are equally good. TestOrderOfEight has larger cases.
func TestOrderTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		cost := drawCosts(t, n)
		host := rapid.SliceOfN(rapid.IntRange(0, 3), n, n).Draw(t, "host")
		site := drawSites(t, host)
		if got, want := ring.Order(cost, host, site), bruteOrder(cost, host, site); !slices.Equal(got, want) {
			t.Fatalf("%v on hosts %v at sites %v: %v, want %v", cost, host, site, got, want)
		}
	})
}

// Of all orders that keep hosts together, Order returns an order with as few impossible links as
// possible and, among such orders, with as few unknown links as possible.
func TestOrderOfTestedLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "n")
		cost := drawCosts(t, n)
		host := rapid.SliceOfN(rapid.IntRange(0, 3), n, n).Draw(t, "host")
		least := -1
		for order := range orders(n) {
			if together(order, host) && (least < 0 || untested(cost, order) < least) {
				least = untested(cost, order)
			}
		}
		if order := ring.Order(cost, host, nil); untested(cost, order) != least {
			t.Fatalf("%v on hosts %v: %v has %d untested links (ten for one that cannot be made), want %d",
				cost, host, order, untested(cost, order), least)
		}
	})
}

// untested returns the number of unknown links in a ring, plus ten for each impossible link.
func untested(cost [][]int64, order []int) int {
	n := 0
	for i, from := range order {
		switch c := cost[from][order[(i+1)%len(order)]]; {
		case c < 0:
			n += 10
		case c == 0:
			n++
		}
	}
	return n
}

// orders iterates over all orders of n ranks that begin with 0.
func orders(n int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var visit func(order []int) bool
		visit = func(order []int) bool {
			if len(order) == n {
				return yield(order)
			}
			for next := range n {
				if !slices.Contains(order, next) && !visit(append(slices.Clone(order), next)) {
					return false
				}
			}
			return true
		}
		visit([]int{0})
	}
}

// drawSites draws a site for each host, and returns the site of each rank.
func drawSites(t *rapid.T, host []int) []int {
	of := rapid.SliceOfN(rapid.IntRange(0, 2), slices.Max(host)+1, slices.Max(host)+1).Draw(t, "sites")
	site := make([]int, len(host))
	for rank, h := range host {
		site[rank] = of[h]
	}
	return site
}

// For eight ranks on six hosts, Order returns the same order as bruteOrder.
func TestOrderOfEight(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		cost := matrix(8, func(_, _ int) int64 { return random.Int64N(50) })
		host := []int{0, 1, 2, 2, 3, 4, 0, 5}
		if got, want := ring.Order(cost, host, nil), bruteOrder(cost, host, make([]int, 8)); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", cost, got, want)
		}
	}
}

// matrix returns the costs between n ranks by a function of the two ranks.
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

// alone returns the hosts of n ranks that each have a host of their own.
func alone(n int) []int { return ring.Chunks(n, n)[:n] }

// Order handles special cases: few ranks, unknown and impossible links, hosts, sites, and costs
// that depend on the direction.
func TestOrderCases(t *testing.T) {
	unknown := func(int, int) int64 { return 0 }
	tests := map[string]struct {
		cost       [][]int64
		host, site []int
		want       []int
	}{
		"nobody":        {nil, nil, nil, nil},
		"one":           {matrix(1, unknown), []int{7}, nil, []int{0}},
		"two":           {matrix(2, unknown), []int{0, 1}, nil, []int{0, 1}},
		"nothing known": {matrix(5, unknown), alone(5), nil, []int{0, 1, 2, 3, 4}},
		"hosts":         {matrix(6, unknown), []int{0, 1, 0, 1, 0, 1}, nil, []int{0, 1, 3, 5, 2, 4}},
		"sites":         {matrix(4, unknown), alone(4), []int{0, 1, 0, 1}, []int{0, 1, 3, 2}},
		"a direction": {matrix(3, func(from, to int) int64 {
			if from == 0 && to == 1 {
				return 10
			}
			return 1
		}), alone(3), nil, []int{0, 2, 1}},
		"impossible": {matrix(4, func(from, to int) int64 {
			if from == 0 && to == 1 || from == 1 && to == 2 {
				return -1
			}
			return 0
		}), alone(4), nil, []int{0, 2, 1, 3}},
		"eleven": {matrix(12, unknown), []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, nil, []int{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ring.Order(test.cost, test.host, test.site); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// For 9 to 30 ranks the result is a permutation that begins with 0 and keeps hosts and sites
// together. Its slowest link costs no less than Bound. A second call returns the same permutation.
func TestOrderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(9, 30).Draw(t, "n")
		cost := drawCosts(t, n)
		host := alone(n)
		if rapid.Bool().Draw(t, "shared") {
			host = rapid.SliceOfN(rapid.IntRange(0, n/2), n, n).Draw(t, "host")
		}
		site := drawSites(t, host)
		order := ring.Order(cost, host, site)
		if sorted := slices.Sorted(slices.Values(order)); order[0] != 0 || !slices.Equal(sorted, alone(n)) || !together(order, host) || !together(order, site) {
			t.Fatalf("%v is no order of hosts %v at sites %v", order, host, site)
		}
		if worst, _ := ring.Bottleneck(cost, order); worst < ring.Bound(cost, host) {
			t.Fatalf("the slowest link costs %d, below the bound %d", worst, ring.Bound(cost, host))
		}
		if again := ring.Order(cost, host, site); !slices.Equal(order, again) {
			t.Fatalf("%v, then %v", order, again)
		}
	})
}

// Even if a third of the links is slow, the search finds a ring without slow links.
func TestOrderAvoidsSlowLinks(t *testing.T) {
	for _, n := range []int{11, 12, 16, 40, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for seed := range uint64(10) {
				cost := patchy(n, seed)
				if worst, _ := ring.Bottleneck(cost, ring.Order(cost, alone(n), nil)); worst >= 100 {
					t.Errorf("seed %d: the slowest link costs %d", seed, worst)
				}
			}
		})
	}
}

// patchy returns random costs: one link in three is ten times as slow as the others.
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
	order := ring.Order(cost, []int{0, 1, 2, 3}, nil)
	slowest, _ := ring.Bottleneck(cost, order)
	fmt.Println(order, slowest)
	// Output: [0 2 1 3] 5
}

// BenchmarkOrder measures Order for different numbers of ranks.
func BenchmarkOrder(b *testing.B) {
	for _, n := range []int{8, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cost := patchy(n, 1)
			for b.Loop() {
				ring.Order(cost, alone(n), nil)
			}
		})
	}
}
