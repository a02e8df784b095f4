package nn

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/trainer"
)

// Network is a chain of layers that ends in a softmax. It implements
// trainer.Model. It is not safe for concurrent use.
type Network struct {
	data    Data
	in      Shape
	classes int
	layers  []layer
	first   []int // index of each layer's first parameter; one more at the end
	late    int   // the layer whose own gradient is computed last; -1 if that is the first with parameters
	params  []trainer.Param
	batch   batch
	work    *worker

	// The last Forward, of which the layers keep what Backward needs.
	samples []int
	logits  []float32
	ready   bool // no other forward pass came after it
}

// New builds a network for the samples of data, whose inputs have the shape in.
// The weights depend on the seed alone, biases are zero. The size of the last
// layer is the number of classes. Names of parameters begin with the number of
// their layer, from 0.
func New(data Data, in Shape, seed uint64, layers ...Layer) (*Network, error) {
	if len(layers) == 0 || in.C < 1 || in.H < 1 || in.W < 1 {
		return nil, fmt.Errorf("nn: new network: %d layers on inputs of %v", len(layers), in)
	}
	n := &Network{data: data, in: in, first: []int{0}, work: new(worker)}
	shape := in
	for i, build := range layers {
		// Each layer has a generator of its own, so that it does not depend on others.
		rng := &random{state: seed ^ uint64(i)<<56}
		rng.state = rng.next()
		l, out, err := build(builder{in: shape, name: fmt.Sprintf("layer%d", i), rng: rng, work: n.work})
		if err != nil {
			return nil, err
		}
		n.layers, shape = append(n.layers, l), out
		n.params = append(n.params, l.params()...)
		n.first = append(n.first, len(n.params))
	}
	n.classes = shape.Size()
	n.late = n.second()
	return n, nil
}

// second returns the second layer with parameters if it can put off a part of its own
// gradient, and -1 otherwise. The next forward pass needs the parameters of the first layer
// before: so their gradient is computed earlier, and on its way to the others meanwhile
// (out-of-order backpropagation, Oh and others, EuroSys 2022).
func (n *Network) second() int {
	found := 0
	for i, l := range n.layers {
		if n.first[i] == n.first[i+1] {
			continue
		}
		if found++; found < 2 {
			continue
		}
		if h, ok := l.(halved); ok && h.split() > 0 {
			return i
		}
		break
	}
	return -1
}

// Order returns in which order gradients are complete, so that Network is a trainer.Ordered.
func (n *Network) Order() []trainer.Piece {
	var order []trainer.Piece
	add := func(first, end, from int) {
		for p := end - 1; p >= first; p-- {
			order = append(order, trainer.Piece{Param: p, From: from})
		}
	}
	var rest func()
	for i := len(n.layers) - 1; i >= 0; i-- {
		first, end := n.first[i], n.first[i+1]
		if i != n.late {
			add(first, end, 0)
			continue
		}
		weights := n.params[first]
		from := n.layers[i].(halved).split() * len(weights.Data) / weights.Shape[0]
		if from == len(weights.Data) {
			rest = func() { add(first, end, 0) }
			continue
		}
		add(first+1, end, 0)
		add(first, first+1, from)
		rest = func() { add(first, first+1, 0) }
	}
	if rest != nil {
		rest()
	}
	return order
}

// Softmax is multinomial logistic regression: one dense layer.
func Softmax(data Data, in Shape, classes int, seed uint64) (*Network, error) {
	return New(data, in, seed, Dense(classes))
}

// MLP is a multi-layer perceptron with ReLU after each hidden layer.
func MLP(data Data, in Shape, hidden []int, classes int, seed uint64) (*Network, error) {
	var layers []Layer
	for _, h := range hidden {
		layers = append(layers, Dense(h), ReLU())
	}
	return New(data, in, seed, append(layers, Dense(classes))...)
}

// CNN is a convolutional network after LeNet: for each element of filters a layer
// of so many 5 x 5 kernels, pooling and ReLU; then a hidden and a last dense layer.
func CNN(data Data, in Shape, filters []int, hidden, classes int, seed uint64) (*Network, error) {
	var layers []Layer
	for _, f := range filters {
		layers = append(layers, Conv(f, 5), Pool(), ReLU())
	}
	return New(data, in, seed, append(layers, Dense(hidden), ReLU(), Dense(classes))...)
}

// Params returns the parameters, weight and bias of each layer in order.
func (n *Network) Params() []trainer.Param { return n.params }

// Accumulate adds the gradient sums of the samples to grad, as trainer.Model says,
// and returns the sum of their losses. It fails, before grad is touched, if an
// index is out of range or a class unknown.
func (n *Network) Accumulate(grad [][]float32, samples []int, done func(i int)) (float64, error) {
	return n.accumulate(grad, samples, listener{whole: done})
}

// AccumulatePieces is Accumulate, but that it tells of rows of large weights as soon as they
// are complete, so that Network is a trainer.Piecewise.
func (n *Network) AccumulatePieces(grad [][]float32, samples []int, ready func(i, from int)) (float64, error) {
	return n.accumulate(grad, samples, listener{pieces: ready})
}

// listener is told what is complete of the gradients of some parameters.
type listener struct {
	first  int               // of the parameters
	whole  func(i int)       // called once for each, unless
	pieces func(i, from int) // is there
}

// ready tells that the gradient of parameter i, counted from the first, is complete from an
// element on.
func (l listener) ready(i, from int) {
	switch {
	case l.pieces != nil:
		l.pieces(l.first+i, from)
	case from == 0:
		l.whole(l.first + i)
	}
}

// source is asked for some parameters before they are read.
type source struct {
	first int                     // of the parameters
	asked func(i, from int) error // nil if they are what they should be
}

// need asks for parameter i, counted from the first, from an element on.
func (s source) need(i, from int) error {
	if s.asked == nil {
		return nil
	}
	return s.asked(s.first+i, from)
}

// all asks for all of the first n parameters.
func (s source) all(n int) error {
	for i := range n {
		if err := s.need(i, 0); err != nil {
			return err
		}
	}
	return nil
}

// accumulate is Accumulate and AccumulatePieces.
func (n *Network) accumulate(grad [][]float32, samples []int, told listener) (float64, error) {
	if len(grad) != len(n.params) {
		return 0, fmt.Errorf("nn: accumulate: %d gradients for %d parameters", len(grad), len(n.params))
	}
	if len(samples) == 0 { // gonum takes no matrices without rows
		for p := len(n.params) - 1; p >= 0; p-- {
			told.ready(p, 0)
		}
		return 0, nil
	}
	delta, err := n.forward(n.data, samples, nil)
	if err != nil {
		return 0, err
	}
	return n.descend(delta, grad, told), nil
}

// descend goes back from the logits of the last forward pass, and returns the loss.
func (n *Network) descend(delta []float32, grad [][]float32, told listener) float64 {
	loss, _ := crossEntropy(delta, n.batch.classes)
	// What a layer adds is on its way to the others before its inputs have their gradient.
	var late []float32 // delta of that layer
	for i := len(n.layers) - 1; i >= 0; i-- {
		own := grad[n.first[i]:n.first[i+1]]
		told.first = n.first[i]
		if i == n.late {
			n.layers[i].(halved).begin(delta, own, told)
			late = delta
		} else {
			n.layers[i].accumulate(delta, own, told)
		}
		if n.first[i] == 0 {
			break // layers before the first parameter need none
		}
		delta = n.layers[i].backward(delta)
	}
	if i := n.late; i >= 0 {
		told.first = n.first[i]
		n.layers[i].(halved).finish(late, grad[n.first[i]:n.first[i+1]], told)
	}
	return loss
}

// Forward computes the outputs of the samples, and Backward adds their gradient sums and
// returns the sum of their losses: together they are AccumulatePieces, so that Network is a
// trainer.Staged.
func (n *Network) Forward(samples []int, need func(i, from int) error) (err error) {
	n.samples, n.logits = append(n.samples[:0], samples...), nil
	if len(samples) > 0 {
		n.logits, err = n.forward(n.data, n.samples, need)
	}
	n.ready = err == nil
	return err
}

// Backward is the other half of Forward. If the network has computed something else
// meanwhile, as an evaluation, it begins anew.
func (n *Network) Backward(grad [][]float32, ready func(i, from int)) (float64, error) {
	if !n.ready || len(n.samples) == 0 || len(grad) != len(n.params) {
		return n.AccumulatePieces(grad, n.samples, ready)
	}
	n.ready = false
	return n.descend(n.logits, grad, listener{pieces: ready}), nil
}

// callBytes is how much memory layers keep of the samples of a call. More of them come from
// ever farther away: those of a convolution then take a tenth longer.
const callBytes = 32 << 20

// MostSamples returns how many samples are computed at once, so that Network is a
// trainer.Wide.
func (n *Network) MostSamples() int {
	size := n.in.Size()
	for _, l := range n.layers {
		size += l.size()
	}
	return max(1, callBytes/4/size)
}

// PauseBy gives the network a function that it calls between parts of its computing, so that
// it is a trainer.Pausing.
func (n *Network) PauseBy(pause func()) { n.work.by = pause }

// Prefetch has samples read ahead if the data can do that, so that Network is a
// trainer.Prefetcher. Unlike the other methods it may be called at any time.
func (n *Network) Prefetch(ctx context.Context, samples []int) {
	if p, ok := n.data.(trainer.Prefetcher); ok {
		p.Prefetch(ctx, samples)
	}
}

// forward returns the logits of samples of d. It calls need, if there is one, before it reads
// a parameter.
func (n *Network) forward(d Data, samples []int, need func(i, from int) error) ([]float32, error) {
	n.ready = false
	err := n.batch.load(d, samples, n.in.Size(), n.classes)
	x := n.batch.inputs
	for i, l := range n.layers {
		if err != nil {
			return nil, err
		}
		x, err = l.forward(x, len(samples), source{n.first[i], need})
	}
	return x, err
}

// evalBatch is how many samples Evaluate computes together.
const evalBatch = 32

// Evaluate returns the score on the samples [first, end) of d, which may be other
// data than that of New, of the same form.
func (n *Network) Evaluate(ctx context.Context, d Data, first, end int) (trainer.Score, error) {
	score := trainer.Score{}
	samples := make([]int, 0, evalBatch)
	for first < end {
		if err := ctx.Err(); err != nil {
			return score, fmt.Errorf("nn: evaluate: %w", context.Cause(ctx))
		}
		samples = samples[:0]
		for ; first < end && len(samples) < evalBatch; first++ {
			samples = append(samples, first)
		}
		logits, err := n.forward(d, samples, nil)
		if err != nil {
			return score, err
		}
		loss, correct := crossEntropy(logits, n.batch.classes)
		score.Loss += loss
		score.Correct += correct
		score.Samples += len(samples)
	}
	return score, nil
}

// Predict returns the most likely class of one sample's inputs. They are copied.
func (n *Network) Predict(inputs []float32) (int, error) {
	if len(inputs) != n.in.Size() {
		return 0, fmt.Errorf("nn: predict: %d inputs, want %d", len(inputs), n.in.Size())
	}
	logits, err := n.forward(Table{Inputs: [][]float32{inputs}, Classes: []int{0}}, []int{0}, nil)
	if err != nil {
		return 0, err
	}
	_, best := sampleLoss(logits, 0)
	return best, nil
}
