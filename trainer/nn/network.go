package nn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/trainer"
)

// Network is a chain of layers that ends in a softmax. Its Model is a trainer.Model. It is not
// safe for concurrent use.
type Network struct {
	data    Data
	in      Shape
	classes int
	first   []int // index of each layer's first parameter; one more at the end
	late    []int // layers that put off a part of their own gradient until that of the first is complete
	params  []trainer.Param
	work    *worker
	lanes   []*lane // one at least; one for each group of a gradient
	scores  *lane   // of evaluations, which may come in the middle of a gradient; nil before the first
	grad    [][]float32
}

// lane is the work space of samples that are computed together.
type lane struct {
	layers []layer
	batch  batch
	delta  []float32   // after a forward pass the logits, then their gradient, and so on down
	late   [][]float32 // delta of each of Network.late
	told   listener    // of the gradients
	loss   float64
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
	shape, own := in, &lane{}
	for i, described := range layers {
		if described.make == nil {
			return nil, fmt.Errorf("nn: new network: layer %d was made by none of Dense, Conv, Pool and ReLU", i)
		}
		// Each layer has a generator of its own, so that it does not depend on others.
		rng := &random{state: seed ^ uint64(i)<<56}
		rng.state = rng.next()
		l, out, err := described.make(builder{in: shape, name: fmt.Sprintf("layer%d", i), rng: rng, work: n.work})
		if err != nil {
			return nil, err
		}
		own.layers, shape = append(own.layers, l), out
		n.params = append(n.params, l.params()...)
		n.first = append(n.first, len(n.params))
	}
	n.classes, n.lanes = shape.Size(), []*lane{own}
	return n, nil
}

// last returns the layers that can put off a part of their own gradient, if what they read last
// in the next forward pass may be complete last. That pass needs the parameters of the first
// layer before: so their gradient is computed earlier, and on its way to the others meanwhile
// (out-of-order backpropagation, Oh and others, EuroSys 2022). What is put off is that of the
// second layer, and of dense ones after it.
func (n *Network) last() (late []int) {
	found := 0
	for i, l := range n.lanes[0].layers {
		if n.first[i] == n.first[i+1] {
			continue
		}
		found++
		h, ok := l.(halved)
		if _, is := l.(*dense); found == 1 || !ok || h.split() == 0 || found > 2 && !is {
			continue
		}
		late = append(late, i)
	}
	return late
}

// order is that of trainer.Model. Until it is called nothing is put off.
func (n *Network) order(ahead bool) (order []trainer.Piece) {
	n.late = nil
	if ahead {
		n.late = n.last()
	}
	for i := range slices.Backward(n.lanes[0].layers) {
		if n.first[i] < n.first[i+1] {
			order = append(order, n.pieces(i, n.rows(i), n.split(i))...)
		}
	}
	for _, i := range n.late {
		order = append(order, n.pieces(i, n.split(i), 0)...)
	}
	return order
}

// split returns how many rows of a layer's weights are put off.
func (n *Network) split(layer int) int {
	if !slices.Contains(n.late, layer) {
		return 0
	}
	return n.lanes[0].layers[layer].(halved).split()
}

// rows returns how many the weights of a layer have.
func (n *Network) rows(layer int) int { return n.params[n.first[layer]].Shape[0] }

// pieces returns the order for the rows of a layer's weights from one on, up to another, and
// for its other parameters, which are told of before the last row.
func (n *Network) pieces(layer, end, from int) (order []trainer.Piece) {
	first, rows := n.first[layer], n.rows(layer)
	if end == rows && from < end {
		for p := n.first[layer+1] - 1; p > first; p-- {
			order = append(order, trainer.Piece{Param: p})
		}
	}
	width := len(n.params[first].Data) / rows
	for end > from {
		next := from
		if d, ok := n.lanes[0].layers[layer].(*dense); ok {
			next = d.pieceBefore(end)
		}
		order = append(order, trainer.Piece{Param: first, From: next * width})
		end = next
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

// Model returns what trainer.Run is given. It waits for parameters piece by piece, computes as
// many samples at once as it has memory for, and groups each as if alone. It has samples read
// ahead if the data can do that.
func (n *Network) Model() trainer.Model {
	m := trainer.Model{Params: n.params, Gradient: n.Gradient, Waits: true, MaxSamples: n.maxSamples(), Grouped: true, Order: n.order}
	if p, ok := n.data.(Prefetcher); ok {
		m.Prefetch = p.Prefetch
	}
	return m
}

// Gradient adds the gradients of a batch, as trainer.Model says. It fails, before they are
// touched, if the index of a sample is out of range or a class unknown.
func (n *Network) Gradient(b *trainer.Batch) (float64, error) {
	n.work.batch = b
	defer func() { n.work.batch = nil }()
	groups := b.Groups()
	for len(n.lanes) < len(groups) {
		n.lanes = append(n.lanes, n.lanes[0].twin())
	}
	lanes := n.lanes[:len(groups)]
	for k, g := range groups {
		if err := n.forward(lanes[k], n.data, g.Samples(), g); err != nil {
			return 0, err
		}
		lanes[k].told = listener{batch: g}
	}
	n.grad = n.grad[:0]
	for i := range n.params {
		n.grad = append(n.grad, b.Grad(i))
	}
	if err := b.Err(); err != nil {
		return 0, err
	}
	n.descend(lanes, n.grad)
	last := len(lanes) - 1
	for k, l := range lanes[:last] {
		groups[k].Loss(l.loss)
	}
	return lanes[last].loss, nil
}

// listener is told what is complete of the gradients of some parameters.
type listener struct {
	first int // of the parameters
	batch *trainer.Batch
}

// done tells that the gradient of parameter i, counted from the first, is complete from an
// element on.
func (l listener) done(i, from int) { l.batch.Done(l.first+i, from) }

// source is waited for before parameters are read.
type source struct {
	first int            // of the parameters
	batch *trainer.Batch // nil if they are there
}

// wait waits for parameter i, counted from the first, from an element on.
func (s source) wait(i, from int) {
	if s.batch != nil {
		s.batch.Wait(s.first+i, from)
	}
}

// twin returns a lane of the same layers with a work space of its own.
func (l *lane) twin() *lane {
	t := &lane{}
	for _, one := range l.layers {
		t.layers = append(t.layers, one.twin())
	}
	return t
}

// descend goes back from the logits of the last forward passes, and leaves the losses.
func (n *Network) descend(lanes []*lane, grad [][]float32) {
	for _, l := range lanes {
		l.loss, _ = crossEntropy(l.delta, l.batch.classes)
	}
	// What a layer adds is on its way to the others before its inputs have their gradient.
	for i := len(n.first) - 2; i >= 0; i-- {
		own := grad[n.first[i]:n.first[i+1]]
		for _, l := range lanes {
			l.told.first = n.first[i]
			l.accumulate(i, slices.Index(n.late, i), own)
		}
		if n.first[i] == 0 {
			break // layers before the first parameter need none
		}
		for _, l := range lanes {
			l.delta = l.layers[i].backward(l.delta)
		}
	}
	for at, i := range n.late {
		for _, l := range lanes {
			l.told.first = n.first[i]
			l.layers[i].(halved).finish(l.late[at], grad[n.first[i]:n.first[i+1]], l.told)
		}
	}
}

// accumulate adds the gradient of a layer's parameters, or as much as is not put off if the
// layer is number at of those that put off some.
func (l *lane) accumulate(layer, at int, grad [][]float32) {
	if at < 0 {
		l.layers[layer].accumulate(l.delta, grad, l.told)
		return
	}
	for len(l.late) <= at {
		l.late = append(l.late, nil)
	}
	l.late[at] = l.delta
	l.layers[layer].(halved).begin(l.delta, grad, l.told)
}

// callBytes is how much memory layers keep of the samples of a call. More of them come from
// ever farther away: those of a convolution then take a tenth longer.
const callBytes = 64 << 20

// maxSamples is that of trainer.Model.
func (n *Network) maxSamples() int {
	size := n.in.Size()
	for _, l := range n.lanes[0].layers {
		size += l.size()
	}
	return max(1, callBytes/4/size)
}

// forward leaves the logits of samples of d in l. If they are those of a batch, it waits for
// each parameter before it reads it, and ends where the batch is of no use any more.
func (n *Network) forward(l *lane, d Data, samples []int, b *trainer.Batch) error {
	if len(samples) == 0 { // gonum takes no matrices without rows
		return errors.New("nn: no samples to compute with")
	}
	if err := l.batch.load(d, samples, n.in.Size(), n.classes); err != nil {
		return err
	}
	l.delta = l.batch.inputs
	for i, layer := range l.layers {
		l.delta = layer.forward(l.delta, len(samples), source{n.first[i], b})
		if b == nil {
			continue
		}
		if err := b.Err(); err != nil {
			return err
		}
	}
	return nil
}

// apart returns the lane of evaluations.
func (n *Network) apart() *lane {
	if n.scores == nil {
		n.scores = n.lanes[0].twin()
	}
	return n.scores
}

// evalBatch is how many samples Evaluate computes together.
const evalBatch = 32

// Evaluate returns the score on the samples [first, end) of d, which may be other
// data than that of New, of the same form. It may be called where trainer.Run reports, in the
// middle of a Gradient.
func (n *Network) Evaluate(ctx context.Context, d Data, first, end int) (trainer.Score, error) {
	score, own := trainer.Score{}, n.apart()
	samples := make([]int, 0, evalBatch)
	for first < end {
		if err := ctx.Err(); err != nil {
			return score, fmt.Errorf("nn: evaluate: %w", context.Cause(ctx))
		}
		samples = samples[:0]
		for ; first < end && len(samples) < evalBatch; first++ {
			samples = append(samples, first)
		}
		if err := n.forward(own, d, samples, nil); err != nil {
			return score, err
		}
		loss, correct := crossEntropy(own.delta, own.batch.classes)
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
	own := n.apart()
	if err := n.forward(own, Table{Inputs: [][]float32{inputs}, Classes: []int{0}}, []int{0}, nil); err != nil {
		return 0, err
	}
	_, best := sampleLoss(own.delta, 0)
	return best, nil
}
