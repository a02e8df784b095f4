package collective

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
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

func drawRequest(t *rapid.T) request {
	return request{
		kind:        transport.Kind(rapid.IntRange(int(transport.KindAllReduce), int(transport.KindPoint)).Draw(t, "kind")),
		ranks:       rapid.IntRange(1, 600).Draw(t, "ranks"),
		bytes:       float64(rapid.IntRange(0, 1<<40).Draw(t, "bytes")),
		segment:     float64(rapid.IntRange(8, maxSegment).Draw(t, "piece")),
		commutative: rapid.Bool().Draw(t, "commutative"),
	}
}

// Auto chooses, among the algorithms that can carry out the call, one with the shortest predicted
// time.
func TestChooseAuto(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		got, err := choose(Auto, &r, DefaultCost())
		if err != nil || !slices.Contains(supported(r.kind), got) {
			t.Fatalf("%+v: %v, %v", r, got, err)
		}
		if got == Ring && !r.commutative {
			t.Fatalf("%+v: a ring", r)
		}
		for _, a := range supported(r.kind) {
			if a == Ring && !r.commutative || got == Ring && r.kind == transport.KindAllReduce && r.bytes >= lowMemoryFrom {
				continue
			}
			if DefaultCost().seconds(workloadOf(a, r)) < DefaultCost().seconds(workloadOf(got, r)) {
				t.Fatalf("%+v: %v though %v is cheaper", r, got, a)
			}
		}
	})
}

// A user's choice is accepted or refused, never replaced.
func TestChooseUsers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		want := rapid.SampledFrom(algorithms()[1:]).Draw(t, "want")
		fits := slices.Contains(supported(r.kind), want) && (r.commutative || want != Ring)
		got, err := choose(want, &r, DefaultCost())
		if fits && (err != nil || got != want) {
			t.Fatalf("%+v: wanted %v, got %v, %v", r, want, got, err)
		}
		if !fits && !errors.Is(err, ErrArgument) {
			t.Fatalf("%+v: wanted %v, got %v, %v", r, want, got, err)
		}
	})
}

// For a long vector Auto chooses an algorithm that needs no second vector, even if another
// algorithm is faster.
func TestChooseLowMemory(t *testing.T) {
	for _, bytes := range []float64{lowMemoryFrom, 1 << 40} {
		r := request{kind: transport.KindAllReduce, ranks: 2, bytes: bytes, commutative: true}
		if got, _ := choose(Auto, &r, Cost{Alpha: 1e6, Beta: 1e-9}); got != Ring {
			t.Errorf("%v bytes by %v", bytes, got)
		}
	}
}

// Predicted times are finite and not negative, and do not fall as vectors grow.
func TestPredictSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		more := r
		more.bytes *= 2
		for _, a := range supported(r.kind) {
			p, q := DefaultCost().seconds(workloadOf(a, r)), DefaultCost().seconds(workloadOf(a, more))
			if p < 0 || q < p || math.IsInf(q, 0) || math.IsNaN(q) {
				t.Fatalf("%v by %v: %v for %+v, %v for twice the bytes", r.kind, a, p, r, q)
			}
		}
	})
}

// Short vectors need few messages, long vectors few bytes. A ring has few messages if it
// has few ranks.
func TestChooseBySize(t *testing.T) {
	for ranks := 5; ranks <= 64; ranks++ {
		for _, kind := range []transport.Kind{transport.KindAllReduce, transport.KindReduceScatter, transport.KindBroadcast, transport.KindReduce} {
			short := request{kind: kind, ranks: ranks, bytes: 4, commutative: true}
			long := request{kind: kind, ranks: ranks, bytes: 1 << 30, commutative: true}
			shortRing := kind == transport.KindReduceScatter && ranks < 16
			if got, _ := choose(Auto, &short, DefaultCost()); got == Ring && !shortRing {
				t.Errorf("%v of 4 bytes at %d ranks by %v", kind, ranks, got)
			}
			if got, _ := choose(Auto, &long, DefaultCost()); got == Tree || got == RecursiveDoubling {
				t.Errorf("%v of 1 GiB at %d ranks by %v", kind, ranks, got)
			}
		}
	}
}
