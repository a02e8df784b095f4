package tensors_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/tensors"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

func TestParamSharesMemory(t *testing.T) {
	dense := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	p, err := tensors.Param("w", dense)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "w" || !slices.Equal(p.Shape, []int{2, 3}) || len(p.Data) != 6 {
		t.Fatalf("parameter is %+v", p)
	}
	p.Data[4] = 50
	if v, err := dense.At(1, 1); err != nil || v != float32(50) {
		t.Errorf("tensor has %v (%v) after the parameter changed to 50", v, err)
	}
	// The shape was copied: the tensor may get another shape.
	if err := dense.Reshape(3, 2); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Shape, []int{2, 3}) {
		t.Errorf("shape is %v after the tensor's changed", p.Shape)
	}
}

// Results of the tensor library's arithmetic, too, must be written to the memory of a view.
func TestArithmeticReachesTheData(t *testing.T) {
	data := []float32{1, 2, 3, 4}
	v, err := tensors.View(data, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tensor.Mul(v, float32(2), tensor.UseUnsafe()); err != nil {
		t.Fatal(err)
	}
	if _, err := tensor.MatMul(v.Clone().(*tensor.Dense), tensor.I(tensor.Float32, 2, 2, 0), tensor.WithIncr(v)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(data, []float32{4, 8, 12, 16}) {
		t.Errorf("data is %v, want four times the former values", data)
	}
}

// Param is the inverse of View, whatever the shape.
func TestThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 4).Draw(t, "shape")
		size := 1
		for _, n := range shape {
			size *= n
		}
		data := make([]float32, size)
		v, err := tensors.View(data, shape...)
		if err != nil {
			t.Fatal(err)
		}
		p, err := tensors.Param("w", v)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Shape, shape) || len(p.Data) != size || &p.Data[0] != &data[0] {
			t.Errorf("%v became %v with %d elements", shape, p.Shape, len(p.Data))
		}
	})
}

func TestParamRefuses(t *testing.T) {
	matrix := func() *tensor.Dense {
		return tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	}
	transposed := matrix()
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	column, err := matrix().Slice(nil, tensor.S(1))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dense *tensor.Dense
		want  string
	}{
		"nil":        {nil, "nil"},
		"float64":    {tensor.New(tensor.WithShape(2), tensor.WithBacking([]float64{1, 2})), "float64"},
		"transposed": {transposed, "not contiguous"},
		"column":     {column.(*tensor.Dense), "not contiguous"},
		"col-major":  {tensor.New(tensor.WithShape(2, 3), tensor.AsFortran([]float32{1, 2, 3, 4, 5, 6})), "not contiguous"},
		"scalar":     {tensor.New(tensor.FromScalar(float32(1))), "shape (1)"},
	} {
		_, err := tensors.Param("w", c.dense)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "parameter w") {
			t.Errorf("%s: error %v, want one with %q and the name", name, err, c.want)
		}
	}
}

func TestViewRefuses(t *testing.T) {
	for _, shape := range [][]int{nil, {}, {5}, {7}, {2, 2}, {-2, -3}, {0}, {6, 0}, {math.MaxInt, 2}, {math.MaxInt/2 + 4, 2}} {
		if v, err := tensors.View(make([]float32, 6), shape...); err == nil || !strings.Contains(err.Error(), "6 elements") {
			t.Errorf("6 elements as %v: %v, error %v", shape, v.Shape(), err)
		}
	}
	if _, err := tensors.View(nil, 0); err == nil {
		t.Error("a view of nothing, of which the tensor library cannot make a tensor")
	}
}
