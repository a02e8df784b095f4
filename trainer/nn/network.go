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
	classes int             // outputs of the last layer
	first   []int           // index of each layer's first parameter, and the number of parameters at the end
	late    []int           // layers that defer a part of their own gradient until the first layer's gradient is complete
	params  []trainer.Param // of all layers, in order
	work    *worker         // computes the products of all layers
	lanes   []*lane         // work space for each group of a batch; at least one
	scores  *lane           // work space of evaluations, which may run in the middle of a gradient; nil before the first
	grad    [][]float32     // of the current call, by parameter; owned by the trainer
}

// lane is the work space for a group of samples that are computed together.
type lane struct {
	layers []layer
	batch  batch
	delta  []float32   // the logits after a forward pass; then the gradient of the activations, layer by layer
	late   [][]float32 // the delta at each layer of Network.late, for finish
	told   listener    // gets reports of finished gradients
	loss   float64     // sum over the samples
}

// New returns a network for the samples of data, whose inputs have the shape in. The last layer
// has one output for each class. Weights depend only on the seed; biases are zero. Parameter
// names begin with the index of their layer, from 0.
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
		// Each layer has a random generator of its own, so its weights do not depend on other
		// layers.
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

// last returns the layers that defer a part of their own gradient (out-of-order backpropagation,
// Oh and others, EuroSys 2022). The next forward pass needs the first layer's parameters first.
// With the deferral their gradient is complete earlier, and is summed over the peers while the
// deferred parts are computed. The second layer with parameters defers, and so do dense layers
// after it.
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

// order implements trainer.Model.Order: the order in which gradients are finished. If ahead is
// set, layers defer a part of their gradient; before the first call none does.
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

// split returns the number of rows of a layer's weights whose gradient is deferred.
func (n *Network) split(layer int) int {
	if !slices.Contains(n.late, layer) {
		return 0
	}
	return n.lanes[0].layers[layer].(halved).split()
}

// rows returns the number of rows of a layer's weights.
func (n *Network) rows(layer int) int { return n.params[n.first[layer]].Shape[0] }

// pieces returns the pieces of a layer's gradient, in the order in which they are finished, for
// the rows [from, end) of its weights. The other parameters are finished before the last row, and
// listed with it.
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

// CNN is a convolutional network like LeNet (LeCun and others 1998): for each element f of
// filters a layer of f kernels of 5 x 5, pooling and ReLU; then a hidden dense layer with ReLU,
// and a dense layer for the classes.
func CNN(data Data, in Shape, filters []int, hidden, classes int, seed uint64) (*Network, error) {
	var layers []Layer
	for _, f := range filters {
		layers = append(layers, Conv(f, 5), Pool(), ReLU())
	}
	return New(data, in, seed, append(layers, Dense(hidden), ReLU(), Dense(classes))...)
}

// Params returns the parameters: weight and bias of each layer, in the order of layers. The
// network owns their memory.
func (n *Network) Params() []trainer.Param { return n.params }

// Model returns the network as a model for trainer.Run. It waits for updated parameters piece by
// piece, computes as many samples at once as its work space allows, and computes each group of
// samples as if alone. If the data is a Prefetcher it reads samples ahead.
func (n *Network) Model() trainer.Model {
	m := trainer.Model{Params: n.params, Gradient: n.Gradient, Waits: true, MaxSamples: n.maxSamples(), Grouped: true, Order: n.order}
	if p, ok := n.data.(Prefetcher); ok {
		m.Prefetch = p.Prefetch
	}
	return m
}

// Gradient adds the gradient of a batch and returns its summed loss, as trainer.Model.Gradient
// requires. It fails, before it touches the gradients, if the index of a sample is out of range
// or its class is unknown.
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

// listener reports finished parts of the gradients of one layer to the batch.
type listener struct {
	first int // index of the layer's first parameter
	batch *trainer.Batch
}

// done reports that the gradient of the layer's parameter i is complete from element from on.
func (l listener) done(i, from int) { l.batch.Done(l.first+i, from) }

// source provides the parameters of one layer, which may still be in the middle of an update.
type source struct {
	first int            // index of the layer's first parameter
	batch *trainer.Batch // nil if all parameters are up to date
}

// wait blocks until the layer's parameter i is up to date from element from on.
func (s source) wait(i, from int) {
	if s.batch != nil {
		s.batch.Wait(s.first+i, from)
	}
}

// twin returns a lane with the same layers and a work space of its own.
func (l *lane) twin() *lane {
	t := &lane{}
	for _, one := range l.layers {
		t.layers = append(t.layers, one.twin())
	}
	return t
}

// descend computes the gradients of the last forward passes, from the logits back to the first
// layer with parameters, and stores the loss of each lane.
func (n *Network) descend(lanes []*lane, grad [][]float32) {
	for _, l := range lanes {
		l.loss, _ = crossEntropy(l.delta, l.batch.classes)
	}
	// A layer's own gradient comes before the gradient of its inputs, so that peers can sum it
	// early.
	for i := len(n.first) - 2; i >= 0; i-- {
		own := grad[n.first[i]:n.first[i+1]]
		for _, l := range lanes {
			l.told.first = n.first[i]
			l.accumulate(i, slices.Index(n.late, i), own)
		}
		if n.first[i] == 0 {
			break // nothing before this layer has parameters
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

// accumulate adds the gradient of a layer's parameters. at is the layer's index in Network.late;
// such a layer adds only the part that it does not defer. at is negative for other layers.
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

// callBytes limits the work space for the samples of one call. Larger work spaces are cached
// worse: convolutions take a tenth longer.
const callBytes = 64 << 20

// maxSamples returns trainer.Model.MaxSamples: the samples whose work space fits callBytes, at
// least one.
func (n *Network) maxSamples() int {
	size := n.in.Size()
	for _, l := range n.lanes[0].layers {
		size += l.size()
	}
	return max(1, callBytes/4/size)
}

// forward computes the logits of samples of d and leaves them in l.delta. With a batch b it waits
// for each parameter before it reads that, and returns early with b.Err if the batch is
// cancelled.
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

// apart returns the lane of evaluations, and allocates it for the first one.
func (n *Network) apart() *lane {
	if n.scores == nil {
		n.scores = n.lanes[0].twin()
	}
	return n.scores
}

// evalBatch is the number of samples that Evaluate computes together.
const evalBatch = 32

// Evaluate returns the score on the samples [first, end) of d. d may be other data than New got,
// with inputs of the same shape. Evaluate may be called in the middle of a Gradient, from a
// report of trainer.Run. If ctx ends, the error wraps its cause.
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

// Predict returns the most likely class of a sample with the given inputs, which stay as they
// are.
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
