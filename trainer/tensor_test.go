package trainer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer"
	"gorgonia.org/tensor"
)

func TestTensorsShareMemory(t *testing.T) {
	backing := []float32{1, 2, 3, 4, 5, 6}
	dense := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(backing))
	p, err := trainer.FromTensor("w", dense)
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

	back := p.Tensor()
	if err := back.SetAt(float32(-1), 0, 2); err != nil {
		t.Fatal(err)
	}
	if backing[2] != -1 || p.Data[2] != -1 {
		t.Errorf("parameter has %v after its tensor changed to -1", p.Data[2])
	}
}

// Arithmetic of the tensor library, too, must land in the parameter.
func TestTensorArithmeticReachesTheParameter(t *testing.T) {
	p := trainer.Param{Name: "w", Shape: []int{3}, Data: []float32{1, 2, 3}}
	if _, err := tensor.Mul(p.Tensor(), float32(2), tensor.UseUnsafe()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Data, []float32{2, 4, 6}) {
		t.Errorf("parameter is %v, want [2 4 6]", p.Data)
	}
}

func TestFromTensorRefusesWhatItCannotShare(t *testing.T) {
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
	tests := map[string]struct {
		dense *tensor.Dense
		want  string
	}{
		"float64":    {tensor.New(tensor.WithShape(2), tensor.WithBacking([]float64{1, 2})), "float64"},
		"transposed": {transposed, "not contiguous"},
		"column":     {column.(*tensor.Dense), "not contiguous"},
		"col-major":  {tensor.New(tensor.WithShape(2, 3), tensor.AsFortran([]float32{1, 2, 3, 4, 5, 6})), "not contiguous"},
	}
	for name, tt := range tests {
		_, err := trainer.FromTensor("w", tt.dense)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "parameter w") {
			t.Errorf("%s: error %v, want one with %q and the name", name, err, tt.want)
		}
	}
}
