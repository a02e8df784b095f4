package nn

import (
	"context"
	"fmt"
	"slices"

	"github.com/elrun/elrun/trainer"
)

// Network is a chain of layers that ends in a softmax. It implements
// trainer.Model. It is not safe for concurrent use.
type Network struct {
	data    Data
	in      Shape
	classes int
	first   []int // index of each layer's first parameter; one more at the end
	late    []int // layers that put off a part of their own gradient until that of the first is complete
	params  []trainer.Param
	work    *worker
	lanes   []*lane // one at least; all is computed in the first but for what is computed abreast

	// The last Forward, of which the layers keep what Backward needs.
	samples []int
	ready   bool // no other forward pass came after it
}

// lane is the work space of samples that are computed together.
type lane struct {
	layers []layer
	batch  batch
	delta  []float32   // after a forward pass the logits, then their gradient, and so on down
	late   [][]float32 // delta of each of Network.late
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

// Order returns in which order gradients are complete, so that Network is a trainer.Ordered.
// Until it is called nothing is put off.
func (n *Network) Order(ahead bool) (order []trainer.Piece) {
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
	first  int                  // of the parameters
	micro  int                  // whose gradient it is
	whole  func(i int)          // called once for each, unless
	pieces func(i, from int)    // is there, or
	each   func(k, i, from int) // which is told whose
}

// ready tells that the gradient of parameter i, counted from the first, is complete from an
// element on.
func (l listener) ready(i, from int) {
	switch {
	case l.each != nil:
		l.each(l.micro, l.first+i, from)
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
	own := n.lanes[:1]
	if err := n.forward(own[0], n.data, samples, nil); err != nil {
		return 0, err
	}
	n.descend(own, grad, told)
	return own[0].loss, nil
}

// AccumulateEach computes microbatches abreast, each of which has some samples, so that
// Network is a trainer.Abreast.
func (n *Network) AccumulateEach(grad [][]float32, micros [][]int, ready func(k, i, from int)) ([]float64, error) {
	if len(grad) != len(n.params) {
		return nil, fmt.Errorf("nn: accumulate: %d gradients for %d parameters", len(grad), len(n.params))
	}
	for len(n.lanes) < len(micros) {
		more := &lane{}
		for _, l := range n.lanes[0].layers {
			more.layers = append(more.layers, l.twin())
		}
		n.lanes = append(n.lanes, more)
	}
	all, losses := n.lanes[:len(micros)], make([]float64, len(micros))
	for k, samples := range micros {
		if len(samples) == 0 {
			return nil, fmt.Errorf("nn: accumulate: microbatch %d of %d has no samples", k, len(micros))
		}
		if err := n.forward(all[k], n.data, samples, nil); err != nil {
			return nil, err
		}
	}
	n.descend(all, grad, listener{each: ready})
	for k, l := range all {
		losses[k] = l.loss
	}
	return losses, nil
}

// descend goes back from the logits of the last forward passes, and leaves the losses.
func (n *Network) descend(lanes []*lane, grad [][]float32, told listener) {
	for _, l := range lanes {
		l.loss, _ = crossEntropy(l.delta, l.batch.classes)
	}
	// What a layer adds is on its way to the others before its inputs have their gradient.
	for i := len(n.first) - 2; i >= 0; i-- {
		own := grad[n.first[i]:n.first[i+1]]
		told.first = n.first[i]
		for k, l := range lanes {
			told.micro = k
			l.accumulate(i, slices.Index(n.late, i), own, told)
		}
		if n.first[i] == 0 {
			break // layers before the first parameter need none
		}
		for _, l := range lanes {
			l.delta = l.layers[i].backward(l.delta)
		}
	}
	for at, i := range n.late {
		told.first = n.first[i]
		for k, l := range lanes {
			told.micro = k
			l.layers[i].(halved).finish(l.late[at], grad[n.first[i]:n.first[i+1]], told)
		}
	}
}

// accumulate adds the gradient of a layer's parameters, or as much as is not put off if the
// layer is number at of those that put off some.
func (l *lane) accumulate(layer, at int, grad [][]float32, told listener) {
	if at < 0 {
		l.layers[layer].accumulate(l.delta, grad, told)
		return
	}
	for len(l.late) <= at {
		l.late = append(l.late, nil)
	}
	l.late[at] = l.delta
	l.layers[layer].(halved).begin(l.delta, grad, told)
}

// Forward computes the outputs of the samples, and Backward adds their gradient sums and
// returns the sum of their losses: together they are AccumulatePieces, so that Network is a
// trainer.Staged.
func (n *Network) Forward(samples []int, need func(i, from int) error) (err error) {
	n.samples = append(n.samples[:0], samples...)
	if len(samples) > 0 {
		err = n.forward(n.lanes[0], n.data, n.samples, need)
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
	n.descend(n.lanes[:1], grad, listener{pieces: ready})
	return n.lanes[0].loss, nil
}

// callBytes is how much memory layers keep of the samples of a call. More of them come from
// ever farther away: those of a convolution then take a tenth longer.
const callBytes = 64 << 20

// MostSamples returns how many samples are computed at once, so that Network is a
// trainer.Wide.
func (n *Network) MostSamples() int {
	size := n.in.Size()
	for _, l := range n.lanes[0].layers {
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

// forward leaves the logits of samples of d in l. It calls need, if there is one, before it
// reads a parameter.
func (n *Network) forward(l *lane, d Data, samples []int, need func(i, from int) error) error {
	n.ready = false
	err := l.batch.load(d, samples, n.in.Size(), n.classes)
	l.delta = l.batch.inputs
	for i, layer := range l.layers {
		if err != nil {
			return err
		}
		l.delta, err = layer.forward(l.delta, len(samples), source{n.first[i], need})
	}
	return err
}

// evalBatch is how many samples Evaluate computes together.
const evalBatch = 32

// Evaluate returns the score on the samples [first, end) of d, which may be other
// data than that of New, of the same form.
func (n *Network) Evaluate(ctx context.Context, d Data, first, end int) (trainer.Score, error) {
	score, own := trainer.Score{}, n.lanes[0]
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
	own := n.lanes[0]
	if err := n.forward(own, Table{Inputs: [][]float32{inputs}, Classes: []int{0}}, []int{0}, nil); err != nil {
		return 0, err
	}
	_, best := sampleLoss(own.delta, 0)
	return best, nil
}
