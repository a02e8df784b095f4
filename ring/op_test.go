package ring

import "testing"

// Each operation has its name, and is right for one pair of elements and for three ranks.
func TestOperations(t *testing.T) {
	for _, c := range []struct {
		op   Reduction[int32]
		name string
		want int32
	}{
		{Sum[int32](), "sum", 18},
		{Prod[int32](), "prod", 72},
		{Min[int32](), "min", 6},
		{Max[int32](), "max", 12},
		{Average[int32](), "average", 6},
		{And[int32](), "and", 1},
		{Or[int32](), "or", 1},
		{Xor[int32](), "xor", 0},
		{BitAnd[int32](), "bitand", 4},
		{BitOr[int32](), "bitor", 14},
		{BitXor[int32](), "bitxor", 10},
		{NewOp("mine", true, func(dst, a, b []int32) { dst[0] = a[0] - b[0] })(), "mine", -6},
	} {
		v := []int32{0}
		c.op.Fold(v, []int32{6}, []int32{12})
		if c.op.Finish != nil {
			c.op.Finish(v, 3)
		}
		if v[0] != c.want || c.op.Name != c.name || !c.op.Commutative {
			t.Errorf("%q (want %q, commutative: %v) gives %d, want %d", c.op.Name, c.name, c.op.Commutative, v[0], c.want)
		}
	}
}
