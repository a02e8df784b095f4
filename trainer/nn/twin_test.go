package nn_test

import (
	"math"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/nn"
)

// The twin is a slow reference implementation. It computes the loss of a network from the definitions, in float64, one sample and
// one element at a time. It reads parameters in order.
type twin struct {
	layers []twinLayer
	in     nn.Shape
}

// twinLayer computes a layer for one sample. p has the layer's weight and, if there is one, its bias.
type twinLayer struct {
	params int
	apply  func(x []float64, in nn.Shape, p [][]float64) ([]float64, nn.Shape)
}

func twinDense(outputs int) twinLayer {
	return twinLayer{2, func(x []float64, _ nn.Shape, p [][]float64) ([]float64, nn.Shape) {
		y := make([]float64, outputs)
		for o := range y {
			y[o] = p[1][o]
			for i, v := range x {
				y[o] += v * p[0][i*outputs+o]
			}
		}
		return y, nn.Shape{C: outputs, H: 1, W: 1}
	}}
}

func twinReLU() twinLayer {
	return twinLayer{0, func(x []float64, in nn.Shape, _ [][]float64) ([]float64, nn.Shape) {
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = max(v, 0)
		}
		return y, in
	}}
}

func twinPool() twinLayer {
	return twinLayer{0, func(x []float64, in nn.Shape, _ [][]float64) ([]float64, nn.Shape) {
		out := nn.Shape{C: in.C, H: in.H / 2, W: in.W / 2}
		y := make([]float64, out.Size())
		for k := range y {
			c, r, col := k/(out.H*out.W), k/out.W%out.H, k%out.W
			at := func(dr, dc int) float64 { return x[(c*in.H+2*r+dr)*in.W+2*col+dc] }
			y[k] = max(at(0, 0), at(0, 1), at(1, 0), at(1, 1))
		}
		return y, out
	}}
}

func twinConv(filters, kernel int) twinLayer {
	return twinLayer{2, func(x []float64, in nn.Shape, p [][]float64) ([]float64, nn.Shape) {
		out := nn.Shape{C: filters, H: in.H - kernel + 1, W: in.W - kernel + 1}
		y := make([]float64, out.Size())
		for k := range y {
			f, r, col := k/(out.H*out.W), k/out.W%out.H, k%out.W
			y[k] = p[1][f]
			for q := range in.C * kernel * kernel {
				c, kr, kc := q/(kernel*kernel), q/kernel%kernel, q%kernel
				y[k] += p[0][f*in.C*kernel*kernel+q] * x[(c*in.H+r+kr)*in.W+col+kc]
			}
		}
		return y, out
	}}
}

// logits returns the logits of one sample.
func (t twin) logits(params [][]float64, inputs []float32) []float64 {
	x, shape := toFloat64(inputs), t.in
	for _, l := range t.layers {
		x, shape = l.apply(x, shape, params[:l.params])
		params = params[l.params:]
	}
	return x
}

// loss sums the cross entropy over the samples.
func (t twin) loss(params [][]float64, data nn.Table, samples []int) float64 {
	total := 0.0
	for _, i := range samples {
		z := t.logits(params, data.Inputs[i])
		sum := 0.0
		for _, v := range z {
			sum += math.Exp(v)
		}
		total += math.Log(sum) - z[data.Classes[i]]
	}
	return total
}

func toFloat64(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

func wideParams(params []trainer.Param) [][]float64 {
	var w [][]float64
	for _, p := range params {
		w = append(w, toFloat64(p.Data))
	}
	return w
}
