package collective

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
)

// step is a number of concurrent messages of one size, and the bytes that each receiver
// reduces.
type step struct{ messages, bytes, folded float64 }

// stepsOf simulates an allreduce of a power of two of ranks whose links are slower than a
// reduction: the reductions of all segments except the last are overlapped and take no time.
func stepsOf(a Algorithm, ranks, bytes, piece float64) []step {
	var all []step
	switch a {
	case RecursiveDoubling:
		for d := 1.0; d < ranks; d *= 2 {
			all = append(all, step{ranks, bytes, min(bytes, piece)})
		}
	case Rabenseifner:
		for d := 1.0; d < ranks; d *= 2 {
			part := bytes / (2 * d)
			all = append(all, step{ranks, part, part}, step{ranks, part, 0})
		}
	case Ring:
		for range int(ranks - 1) {
			all = append(all, step{ranks, bytes / ranks, min(bytes/ranks, piece)}, step{ranks, bytes / ranks, 0})
		}
	case Tree:
		for d := 1.0; d < ranks; d *= 2 {
			all = append(all, step{ranks / (2 * d), bytes, bytes}, step{ranks / (2 * d), bytes, 0})
		}
	}
	return all
}

// The times that are computed from the workloads of AllReduce equal the times of a simulation step
// by step.
func TestCostBySimulation(t *testing.T) {
	cost := Cost{Alpha: 3e6, Beta: 5, Gamma: 2, OtherAlpha: 1e6, OtherBeta: 0.5}
	for _, ranks := range []int{2, 4, 8, 16} {
		r := request{kind: transport.KindAllReduce, ranks: ranks, bytes: 1 << 20, segment: 100e3, commutative: true}
		for _, a := range supported(transport.KindAllReduce) {
			want := 0.0
			for _, s := range stepsOf(a, float64(ranks), r.bytes, r.segment) {
				want += min(s.messages, 1)*cost.Alpha + max(0, s.messages-1)*cost.OtherAlpha + s.bytes*(cost.Beta+max(0, s.messages-1)*cost.OtherBeta) + s.folded*cost.Gamma
			}
			if got := cost.seconds(workloadOf(a, r), ranks); math.Abs(got-want) > 1e-9*want {
				t.Errorf("%v at %d ranks: got %v, want %v", a, ranks, got, want)
			}
		}
	}
}

// No call has fewer messages in total than in sequence, nor fewer bytes.
func TestWorkloadsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		for _, a := range supported(r.kind) {
			l := workloadOf(a, r)
			if l.messages < l.steps || l.bytes < l.path*(1-1e-9) || l.reduced < 0 || l.overlapped < 0 {
				t.Fatalf("%v by %v, %+v: %+v", r.kind, a, r, l)
			}
		}
	})
}

// The fastest call of each series counts, whichever its round. Rounds in which a shorter
// series has no call are ignored.
func TestFastest(t *testing.T) {
	never := math.Inf(1)
	times := []float64{
		9, 5, 40,
		2, 80, 41,
		7, 4, never,
		3, 6, never,
	}
	if got := fastest(times, 3); !slices.Equal(got, []float64{2, 4, 40}) {
		t.Errorf("got %v", got)
	}
}

// fit recovers the costs from the times that calls take under these costs.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(2, 40).Draw(t, "ranks")
		want := Cost{Alpha: rapid.Float64Range(1e-6, 1e-3).Draw(t, "alpha"), Beta: rapid.Float64Range(1e-10, 1e-8).Draw(t, "beta"),
			Gamma: rapid.Float64Range(0, 1e-9).Draw(t, "gamma")}
		want.OtherAlpha = rapid.Float64Range(0, 1).Draw(t, "crowded") * want.Alpha
		want.OtherBeta = rapid.Float64Range(0, 0.5).Draw(t, "filled") * want.Beta
		var took [4]float64
		for i, a := range []Algorithm{RecursiveDoubling, Tree} {
			l := longWorkload(a, ranks)
			took[2+i] = want.seconds(l, ranks)
			l.path, l.bytes, l.reduced = 0, 0, 0
			took[i] = want.seconds(l, ranks)
		}
		got := fit(ranks, took, want.Gamma)
		for _, c := range [][2]float64{{got.Alpha, want.Alpha}, {got.Beta, want.Beta}, {got.OtherAlpha, want.OtherAlpha}, {got.OtherBeta, want.OtherBeta}} {
			if math.Abs(c[0]-c[1]) > 1e-6*(c[1]+want.Alpha*1e-3) {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		}
		l := longWorkload(RecursiveDoubling, ranks)
		far := fitFar(ranks, l.steps*want.Alpha, l.steps*want.Alpha+l.path*want.Beta+l.reduced*want.Gamma, want.Gamma)
		if math.Abs(far.Alpha-want.Alpha) > 1e-9*want.Alpha || math.Abs(far.Beta-want.Beta) > 1e-6*want.Beta+1e-15 || far.OtherBeta != 0 {
			t.Fatalf("from afar: got %+v, want %+v", far, want)
		}
	})
}

// fit returns valid costs for any measured times.
func TestFitOfNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(2, 600).Draw(t, "ranks")
		var took [4]float64
		for i := range took {
			took[i] = rapid.Float64Range(0, 10).Draw(t, "took")
		}
		c := fit(ranks, took, rapid.Float64Range(0, 1e-6).Draw(t, "gamma"))
		for _, v := range []float64{c.Alpha, c.Beta} {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Fatalf("%v: %+v", took, c)
			}
		}
		if !(c.OtherAlpha >= 0 && c.OtherAlpha <= c.Alpha && c.OtherBeta >= 0 && c.OtherBeta <= c.Beta/2) {
			t.Fatalf("%v: %+v", took, c)
		}
	})
}
