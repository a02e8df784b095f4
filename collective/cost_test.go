package collective

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
)

// step is an exchange of messages of one size, and the bytes that each receiver reduces.
type step struct{ bytes, folded float64 }

// stepsOf simulates an allreduce of a power of two of ranks whose links are slower than a
// reduction: the reductions of all segments except the last are overlapped and take no time.
func stepsOf(a Algorithm, ranks, bytes, piece float64) []step {
	var all []step
	switch a {
	case RecursiveDoubling:
		for d := 1.0; d < ranks; d *= 2 {
			all = append(all, step{bytes, min(bytes, piece)})
		}
	case Rabenseifner:
		for d := 1.0; d < ranks; d *= 2 {
			part := bytes / (2 * d)
			all = append(all, step{part, part}, step{part, 0})
		}
	case Ring:
		for range int(ranks - 1) {
			all = append(all, step{bytes / ranks, min(bytes/ranks, piece)}, step{bytes / ranks, 0})
		}
	case Tree:
		for d := 1.0; d < ranks; d *= 2 {
			all = append(all, step{bytes, bytes}, step{bytes, 0})
		}
	}
	return all
}

// The times that are computed from the workloads of AllReduce equal the times of a simulation step
// by step.
func TestCostBySimulation(t *testing.T) {
	cost := Cost{Alpha: 3e6, Beta: 5, Gamma: 2}
	for _, ranks := range []int{2, 4, 8, 16} {
		r := request{kind: transport.KindAllReduce, ranks: ranks, bytes: 1 << 20, segment: 100e3, commutative: true}
		for _, a := range supported(transport.KindAllReduce) {
			want := 0.0
			for _, s := range stepsOf(a, float64(ranks), r.bytes, r.segment) {
				want += cost.Alpha + s.bytes*cost.Beta + s.folded*cost.Gamma
			}
			if got := cost.seconds(workloadOf(a, r)); math.Abs(got-want) > 1e-9*want {
				t.Errorf("%v at %d ranks: got %v, want %v", a, ranks, got, want)
			}
		}
	}
}

// costOf recovers the costs from the times that calls take under these costs.
func TestCostOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(2, 40).Draw(t, "ranks")
		want := Cost{Alpha: rapid.Float64Range(1e-6, 1e-3).Draw(t, "alpha"), Beta: rapid.Float64Range(1e-10, 1e-8).Draw(t, "beta"),
			Gamma: rapid.Float64Range(0, 1e-9).Draw(t, "gamma")}
		l := probeWorkload(ranks)
		got := costOf(ranks, l.steps*want.Alpha, want.seconds(l), want.Gamma)
		if math.Abs(got.Alpha-want.Alpha) > 1e-9*want.Alpha || math.Abs(got.Beta-want.Beta) > 1e-6*want.Beta || got.Gamma != want.Gamma {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// costOf returns valid costs for any measured times.
func TestCostOfNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Float64Range(0, 10)
		c := costOf(rapid.IntRange(2, 600).Draw(t, "ranks"), seconds.Draw(t, "short"), seconds.Draw(t, "long"), rapid.Float64Range(0, 1e-6).Draw(t, "gamma"))
		for _, v := range []float64{c.Alpha, c.Beta} {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Fatalf("%+v", c)
			}
		}
	})
}
