package main

import (
	"math"
	"math/rand/v2"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/tensors"
	"gorgonia.org/tensor"
)

// Sizes of the data and of the model.
const (
	trainingSet, testSet = 3000, 1000 // numbers of samples
	rings                = 3
	hidden               = 24
)

// Data is a set of points in the plane, each in one of the rings.
type Data struct {
	Points *tensor.Dense // samples x 2
	Rings  []int         // ring of each sample; 0 is the innermost
}

// points generates n points. They are different for different n.
func points(n int) Data {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	d := Data{Points: tensor.New(tensor.WithShape(n, 2), tensor.Of(tensor.Float32)), Rings: make([]int, n)}
	xy := d.Points.Data().([]float32)
	for i := range n {
		ring := r.IntN(rings)
		radius, angle := float64(ring)+0.1+0.8*r.Float64(), 2*math.Pi*r.Float64()
		d.Rings[i] = ring
		xy[2*i], xy[2*i+1] = float32(radius*math.Cos(angle)), float32(radius*math.Sin(angle))
	}
	return d
}

// Model is a network with one hidden layer. Params and Gradient are for a trainer.Model.
type Model struct {
	data   Data
	params []trainer.Param
	// w1, b1, w2 and b2 have the shapes 2 x hidden, 1 x hidden, hidden x rings and 1 x rings.
	// They share the memory of params, in this order.
	w1, b1, w2, b2 *tensor.Dense
}

// NewModel returns a model for data, with the same parameters at every peer.
func NewModel(data Data) (*Model, error) {
	m := &Model{
		data: data,
		w1:   tensor.New(tensor.WithShape(2, hidden), tensor.Of(tensor.Float32)),
		b1:   tensor.New(tensor.WithShape(1, hidden), tensor.Of(tensor.Float32)),
		w2:   tensor.New(tensor.WithShape(hidden, rings), tensor.Of(tensor.Float32)),
		b2:   tensor.New(tensor.WithShape(1, rings), tensor.Of(tensor.Float32)),
	}
	// A fixed seed: all peers need the same initial parameters.
	r := rand.New(rand.NewPCG(1, 0))
	for _, p := range []struct {
		name  string
		t     *tensor.Dense
		scale float64
	}{{"hidden.weight", m.w1, 1}, {"hidden.bias", m.b1, 1}, {"out.weight", m.w2, 0.3}, {"out.bias", m.b2, 0}} {
		param, err := tensors.Param(p.name, p.t)
		if err != nil {
			return nil, err
		}
		for i := range param.Data {
			param.Data[i] = float32(p.scale * r.NormFloat64())
		}
		m.params = append(m.params, param)
	}
	return m, nil
}

// Params returns the parameters, which share the memory of the tensors.
func (m *Model) Params() []trainer.Param { return m.params }

// Gradient adds the gradients of a batch to the gradients of the trainer, and returns the sum of
// the losses of the batch.
func (m *Model) Gradient(b *trainer.Batch) (loss float64, err error) {
	views := make([]*tensor.Dense, len(m.params))
	for i, p := range m.params {
		if views[i], err = tensors.View(b.Grad(i), p.Shape...); err != nil {
			return 0, err
		}
	}
	w1, b1, w2, b2 := views[0], views[1], views[2], views[3]

	x, err := rows(m.data.Points, b.Samples())
	if err != nil {
		return 0, err
	}
	h, y, err := m.forward(x)
	if err != nil {
		return 0, err
	}
	loss = deviate(y, m.data.Rings, b.Samples()) // from here on y is d loss / d y
	if err := accumulate(w2, b2, h, y); err != nil {
		return 0, err
	}
	b.Done(3, 0)
	b.Done(2, 0)
	d, err := m.backward(h, y)
	if err != nil {
		return 0, err
	}
	return loss, accumulate(w1, b1, x, d)
}

// Score returns the score on the samples [lo, hi) of data.
func (m *Model) Score(data Data, lo, hi int) (s trainer.Score, err error) {
	if lo == hi {
		return s, nil
	}
	samples := make([]int, hi-lo)
	for i := range samples {
		samples[i] = lo + i
	}
	x, err := rows(data.Points, samples)
	if err != nil {
		return s, err
	}
	_, y, err := m.forward(x)
	if err != nil {
		return s, err
	}
	best, err := y.Argmax(1)
	if err != nil {
		return s, err
	}
	for k, ring := range best.Data().([]int) {
		if ring == data.Rings[samples[k]] {
			s.Correct++
		}
	}
	s.Samples, s.Loss = len(samples), deviate(y, data.Rings, samples)
	return s, nil
}

// rows returns a copy of the rows with the given indices.
func rows(t *tensor.Dense, samples []int) (*tensor.Dense, error) {
	picked, err := tensor.ByIndices(t, tensor.New(tensor.WithBacking(samples)), 0)
	if err != nil {
		return nil, err
	}
	return picked.(*tensor.Dense), nil
}

// forward returns the outputs of the hidden layer and of the last layer for rows of points.
func (m *Model) forward(x *tensor.Dense) (h, y *tensor.Dense, err error) {
	if h, err = affine(x, m.w1, m.b1); err != nil {
		return nil, nil, err
	}
	if _, err = tensor.Tanh(h, tensor.UseUnsafe()); err != nil {
		return nil, nil, err
	}
	y, err = affine(h, m.w2, m.b2)
	return h, y, err
}

// affine returns x w + b, with b added to each row.
func affine(x, w, b *tensor.Dense) (*tensor.Dense, error) {
	z, err := tensor.MatMul(tensor.Ones(tensor.Float32, x.Shape()[0], 1), b)
	if err != nil {
		return nil, err
	}
	_, err = tensor.MatMul(x, w, tensor.WithIncr(z))
	return z.(*tensor.Dense), err
}

// deviate replaces y by d loss / d y, which is the softmax of each row minus 1 at its ring, and
// returns the sum of the losses.
func deviate(y *tensor.Dense, ring []int, samples []int) (loss float64) {
	all := y.Data().([]float32)
	for k, sample := range samples {
		row := all[k*rings : (k+1)*rings]
		top, sum := float64(max(row[0], row[1], row[2])), 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - top)
		}
		for i, v := range row {
			row[i] = float32(math.Exp(float64(v)-top) / sum)
			if i == ring[sample] {
				loss += math.Log(sum) + top - float64(v)
				row[i]--
			}
		}
	}
	return loss
}

// backward returns the gradient of the hidden layer's inputs, given the gradient d of the
// outputs.
func (m *Model) backward(h, d *tensor.Dense) (*tensor.Dense, error) {
	w, err := m.w2.SafeT()
	if err != nil {
		return nil, err
	}
	back, err := tensor.MatMul(d, w)
	if err != nil {
		return nil, err
	}
	into := back.(*tensor.Dense)
	g, out := into.Data().([]float32), h.Data().([]float32)
	for i, v := range out {
		g[i] *= 1 - v*v
	}
	return into, nil
}

// accumulate adds the gradients of an affine layer with inputs x, given the gradient d of its
// outputs: xᵀ d for the weights, 1ᵀ d for the bias.
func accumulate(weights, bias, x, d *tensor.Dense) error {
	t, err := x.SafeT()
	if err != nil {
		return err
	}
	if _, err := tensor.MatMul(t, d, tensor.WithIncr(weights)); err != nil {
		return err
	}
	_, err = tensor.MatMul(tensor.Ones(tensor.Float32, 1, d.Shape()[0]), d, tensor.WithIncr(bias))
	return err
}
