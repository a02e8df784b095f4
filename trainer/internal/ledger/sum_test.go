package ledger

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// slowLoss is an independent implementation of SumOf: it returns the loss in units of 2^-64, truncated towards zero.
func slowLoss(x float64) *big.Int {
	f := new(big.Float).SetPrec(400).SetFloat64(max(-maxLoss, min(maxLoss, x)))
	i, _ := new(big.Float).SetMantExp(f, 64).Int(nil)
	return i
}

// units returns s in units of 2^-64.
func units(s Sum) *big.Int {
	v := new(big.Int).Lsh(big.NewInt(s.Hi), 64)
	return v.Add(v, new(big.Int).SetUint64(s.Lo))
}

func anyLoss() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64(), rapid.Float64Range(-10, 10), rapid.Float64Range(-1e-15, 1e-15),
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, 0x1p-64, -0x1p-64, 0x1p-65, 1 - 0x1p-53, maxLoss, -maxLoss, math.MaxFloat64}))
}

func TestLossSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var forward, backward Sum
		want := new(big.Int)
		losses := rapid.SliceOf(anyLoss()).Draw(t, "losses")
		for i, x := range losses {
			forward = forward.Plus(SumOf(x))
			backward = backward.Plus(SumOf(losses[len(losses)-1-i]))
			want.Add(want, slowLoss(x))
		}
		if forward != backward || units(forward).Cmp(want) != 0 {
			t.Fatalf("sum of %v is %v, from the other end %v, want %v", losses, units(forward), units(backward), want)
		}
		exact, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(want), -64).Float64()
		if got := forward.Float(); math.Abs(got-exact) > math.Abs(exact)*1e-15+0x1p-63 {
			t.Fatalf("sum %v, want %v", got, exact)
		}
	})
}
