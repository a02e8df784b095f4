package collective

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestParseAlgorithm(t *testing.T) {
	for _, a := range algorithms() {
		if got, err := ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("%v became %v, %v", a, got, err)
		}
	}
	for _, name := range []string{"", "Ring", "algorithm(1)", "none"} {
		if got, err := ParseAlgorithm(name); err == nil {
			t.Errorf("%q became %v", name, got)
		}
	}
}

func drawNeed(t *rapid.T) need {
	return need{
		kind:        Kind(rapid.IntRange(int(KindAllReduce), int(KindPoint)).Draw(t, "kind")),
		ranks:       rapid.IntRange(1, 600).Draw(t, "ranks"),
		bytes:       float64(rapid.IntRange(0, 1<<40).Draw(t, "bytes")),
		commutative: rapid.Bool().Draw(t, "commutative"),
	}
}

// Auto takes a way that can do the call, at the lowest price of all that can.
func TestChooseAuto(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNeed(t)
		got, err := choose(Auto, n, DefaultCost())
		if err != nil || !slices.Contains(supported(n.kind), got) {
			t.Fatalf("%+v: %v, %v", n, got, err)
		}
		if got == Ring && !n.commutative {
			t.Fatalf("%+v: a ring", n)
		}
		for _, a := range supported(n.kind) {
			if a == Ring && !n.commutative {
				continue
			}
			if predict(a, n, DefaultCost()) < predict(got, n, DefaultCost()) {
				t.Fatalf("%+v: %v though %v is cheaper", n, got, a)
			}
		}
	})
}

// A choice of the user's is taken or refused, never replaced.
func TestChooseUsers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNeed(t)
		want := rapid.SampledFrom(algorithms()[1:]).Draw(t, "want")
		fits := slices.Contains(supported(n.kind), want) && (n.commutative || want != Ring)
		got, err := choose(want, n, DefaultCost())
		if fits && (err != nil || got != want) {
			t.Fatalf("%+v: wanted %v, got %v, %v", n, want, got, err)
		}
		if !fits && !errors.Is(err, ErrArgument) {
			t.Fatalf("%+v: wanted %v, got %v, %v", n, want, got, err)
		}
	})
}

// Prices are finite, not negative, and do not fall as vectors grow.
func TestPredictSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNeed(t)
		more := n
		more.bytes *= 2
		for _, a := range supported(n.kind) {
			p, q := predict(a, n, DefaultCost()), predict(a, more, DefaultCost())
			if p < 0 || q < p || math.IsInf(q, 0) || math.IsNaN(q) {
				t.Fatalf("%v by %v: %v for %+v, %v for twice the bytes", n.kind, a, p, n, q)
			}
		}
	})
}

// The formulas of allreduce are those that a count of messages gives where the number
// of ranks is a power of two.
func TestPredictAllReduceByCounting(t *testing.T) {
	cost := Cost{Alpha: 3, Beta: 5, Gamma: 2}
	for _, ranks := range []int{2, 4, 8, 16} {
		n := need{kind: KindAllReduce, ranks: ranks, bytes: 1 << 20, commutative: true}
		var doubling, halving float64
		for d := 1; d < ranks; d *= 2 {
			part := n.bytes / float64(2*d)
			doubling += cost.Alpha + n.bytes*(cost.Beta+cost.Gamma)
			halving += 2*cost.Alpha + part*(2*cost.Beta+cost.Gamma)
		}
		chunk := n.bytes / float64(ranks)
		ring := float64(2*(ranks-1)) * (cost.Alpha + chunk*cost.Beta) // folds hide
		for a, want := range map[Algorithm]float64{RecursiveDoubling: doubling, Rabenseifner: halving, Ring: ring} {
			if got := predict(a, n, cost); math.Abs(got-want) > 1e-9*want {
				t.Errorf("%v at %d ranks: got %v, want %v", a, ranks, got, want)
			}
		}
	}
}

// Short vectors want few messages, long ones few bytes.
func TestChooseBySize(t *testing.T) {
	for ranks := 5; ranks <= 64; ranks++ {
		for _, kind := range []Kind{KindAllReduce, KindReduceScatter, KindBroadcast, KindReduce} {
			short := need{kind: kind, ranks: ranks, bytes: 4, commutative: true}
			long := need{kind: kind, ranks: ranks, bytes: 1 << 30, commutative: true}
			if got, _ := choose(Auto, short, DefaultCost()); got == Ring {
				t.Errorf("%v of 4 bytes at %d ranks by %v", kind, ranks, got)
			}
			if got, _ := choose(Auto, long, DefaultCost()); got == Tree || got == RecursiveDoubling {
				t.Errorf("%v of 1 GiB at %d ranks by %v", kind, ranks, got)
			}
		}
	}
}
