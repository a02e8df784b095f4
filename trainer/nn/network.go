package nn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/elrun/elrun/trainer"
)

// Network is a chain of layers that ends in a softmax. Model returns it as a trainer.Model. It is
// not safe for concurrent use.
type Network struct {
	data     Data
	in       Shape
	classes  int   // outputs of the last layer
	first    []int // index of each layer's first parameter; the last element is the number of parameters
	deferred []int // layers that defer a part of their gradient until the first layer's gradient is complete
	// params are the parameters of all layers, in the order of the layers.
	params        []trainer.Param
	gemmer        *gemmer      // computes the products of all layers
	workspaces    []*workspace // work space for each group of a batch; at least one
	evalWorkspace *workspace   // work space of evaluations, which may run in the middle of a gradient; nil before the first
	// grad is the gradient of the current call, by parameter. The trainer owns it.
	grad [][]float32
}

// workspace is the work space for a group of samples that are computed together.
type workspace struct {
	layers   []layer
	batch    batch
	delta    []float32    // the logits after a forward pass; then the gradient of the activations, layer by layer
	deferred [][]float32  // the delta at each layer of Network.deferred, for accumulateDeferred
	reporter gradReporter // gets reports of finished gradients
	loss     float64      // sum over the samples
}

// New returns a network for the samples of data, whose inputs have the shape in. The last layer
// has one output for each class. Weights depend only on the seed; biases are zero. Parameter
// names begin with the index of their layer, from 0.
func New(data Data, in Shape, seed uint64, layers ...Layer) (*Network, error) {
	if len(layers) == 0 || in.C < 1 || in.H < 1 || in.W < 1 {
		return nil, fmt.Errorf("nn: new network: %d layers on inputs of %v, want at least one layer, and C, H and W of at least 1", len(layers), in)
	}
	n := &Network{data: data, in: in, first: []int{0}, gemmer: new(gemmer)}
	shape, own := in, &workspace{}
	for i, described := range layers {
		if described.make == nil {
			return nil, fmt.Errorf("nn: new network: layer %d is the zero Layer: make it by Dense, Conv, Pool or ReLU", i)
		}
		// Each layer has a random generator of its own, so its weights do not depend on other
		// layers.
		rng := &random{state: seed ^ uint64(i)<<56}
		rng.state = rng.next()
		l, out, err := described.make(builder{in: shape, name: fmt.Sprintf("layer%d", i), rng: rng, gemmer: n.gemmer})
		if err != nil {
			return nil, err
		}
		own.layers, shape = append(own.layers, l), out
		n.params = append(n.params, l.params()...)
		n.first = append(n.first, len(n.params))
	}
	n.classes, n.workspaces = shape.Size(), []*workspace{own}
	return n, nil
}

// deferredLayers returns the layers that defer a part of their own gradient (out-of-order
// backpropagation, Oh and others, EuroSys 2022). The next forward pass needs the first layer's
// parameters first. With the deferral the gradient of the first layer is complete earlier, and is
// summed over the peers while the deferred parts are computed. The second layer with parameters
// defers, and so do dense layers after it.
func (n *Network) deferredLayers() (deferred []int) {
	found := 0
	for i, l := range n.workspaces[0].layers {
		if n.first[i] == n.first[i+1] {
			continue
		}
		found++
		h, ok := l.(deferrable)
		if _, is := l.(*dense); found == 1 || !ok || h.split() == 0 || found > 2 && !is {
			continue
		}
		deferred = append(deferred, i)
	}
	return deferred
}

// order implements trainer.Model.Order: the order in which gradients are finished. If pipelined is
// set, some layers defer a part of their gradient from now on. Before the first call no layer
// defers.
func (n *Network) order(pipelined bool) (order []trainer.Piece) {
	n.deferred = nil
	if pipelined {
		n.deferred = n.deferredLayers()
	}
	for i := range slices.Backward(n.workspaces[0].layers) {
		if n.first[i] < n.first[i+1] {
			order = append(order, n.pieces(i, n.rows(i), n.split(i))...)
		}
	}
	for _, i := range n.deferred {
		order = append(order, n.pieces(i, n.split(i), 0)...)
	}
	return order
}

// split returns the number of rows of a layer's weights whose gradient is deferred.
func (n *Network) split(layer int) int {
	if !slices.Contains(n.deferred, layer) {
		return 0
	}
	return n.workspaces[0].layers[layer].(deferrable).split()
}

// rows returns the number of rows of a layer's weights.
func (n *Network) rows(layer int) int { return n.params[n.first[layer]].Shape[0] }

// pieces returns the pieces of a layer's gradient, in the order in which they are finished, for the
// rows [from, end) of its weights. The other parameters of the layer are finished before the rows,
// so they come first if the last row is included.
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
		if d, ok := n.workspaces[0].layers[layer].(*dense); ok {
			next = d.pieceBefore(end)
		}
		order = append(order, trainer.Piece{Param: first, From: next * width})
		end = next
	}
	return order
}

// Softmax is multinomial logistic regression: one dense layer from all inputs to the classes.
func Softmax(data Data, in Shape, classes int, seed uint64) (*Network, error) {
	return New(data, in, seed, Dense(classes))
}

// MLP is a multi-layer perceptron: for each element h of hidden a dense layer with h outputs and
// ReLU, and then a dense layer for the classes. Without hidden layers it equals Softmax.
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

// Model returns the network as a model for trainer.Run. The model waits for updated parameters
// piece by piece, and computes as many samples in one call as its work space allows. It computes
// each group of samples independently of the other groups. If the data is a Prefetcher, the model
// prefetches samples.
func (n *Network) Model() trainer.Model {
	m := trainer.Model{Params: n.params, Gradient: n.Gradient, Waits: true, MaxSamples: n.maxSamples(), Grouped: true, Order: n.order}
	if p, ok := n.data.(Prefetcher); ok {
		m.Prefetch = p.Prefetch
	}
	return m
}

// Gradient adds the gradient of a batch and returns its summed loss, as trainer.Model.Gradient
// requires. It returns an error, and leaves the gradients unchanged, if the index of a sample is
// out of range or its class is unknown.
func (n *Network) Gradient(b *trainer.Batch) (float64, error) {
	n.gemmer.batch = b
	defer func() { n.gemmer.batch = nil }()
	groups := b.Groups()
	for len(n.workspaces) < len(groups) {
		n.workspaces = append(n.workspaces, n.workspaces[0].clone())
	}
	workspaces := n.workspaces[:len(groups)]
	for k, g := range groups {
		if err := n.forward(workspaces[k], n.data, g.Samples(), g); err != nil {
			return 0, err
		}
		workspaces[k].reporter = gradReporter{batch: g}
	}
	n.grad = n.grad[:0]
	for i := range n.params {
		// The forward pass is done before the first Grad, which waits until the memory for
		// gradients is free.
		n.grad = append(n.grad, b.Grad(i))
	}
	if err := b.Err(); err != nil {
		return 0, err
	}
	n.backpropagate(workspaces, n.grad)
	last := len(workspaces) - 1
	for k, ws := range workspaces[:last] {
		groups[k].Loss(ws.loss)
	}
	return workspaces[last].loss, nil
}

// gradReporter reports finished parts of the gradients of one layer to the batch.
type gradReporter struct {
	first int // index of the layer's first parameter
	batch *trainer.Batch
}

// report reports that the elements [from:] of the gradient of the layer's parameter i are complete.
func (g gradReporter) report(i, from int) { g.batch.Done(g.first+i, from) }

// paramWaiter provides the parameters of one layer, which may still be in the middle of an update.
type paramWaiter struct {
	first int            // index of the layer's first parameter
	batch *trainer.Batch // nil if all parameters are up to date
}

// wait blocks until the elements [from:] of the layer's parameter i are up to date.
func (p paramWaiter) wait(i, from int) {
	if p.batch != nil {
		p.batch.Wait(p.first+i, from)
	}
}

// clone returns a workspace with the same layers and a work space of its own.
func (ws *workspace) clone() *workspace {
	t := &workspace{}
	for _, one := range ws.layers {
		t.layers = append(t.layers, one.shareParams())
	}
	return t
}

// backpropagate computes the gradients of the last forward passes, from the logits back to the
// first layer with parameters, and stores the loss of each workspace.
func (n *Network) backpropagate(workspaces []*workspace, grad [][]float32) {
	for _, ws := range workspaces {
		ws.loss, _ = crossEntropy(ws.delta, ws.batch.classes)
	}
	// The gradient of a layer's parameters comes before the gradient of its inputs, so that its
	// reduction starts early.
	for i := len(n.first) - 2; i >= 0; i-- {
		own := grad[n.first[i]:n.first[i+1]]
		for _, ws := range workspaces {
			ws.reporter.first = n.first[i]
			ws.accumulate(i, slices.Index(n.deferred, i), own)
		}
		if n.first[i] == 0 {
			break // nothing before this layer has parameters
		}
		for _, ws := range workspaces {
			ws.delta = ws.layers[i].backward(ws.delta)
		}
	}
	for at, i := range n.deferred {
		for _, ws := range workspaces {
			ws.reporter.first = n.first[i]
			ws.layers[i].(deferrable).accumulateDeferred(ws.deferred[at], grad[n.first[i]:n.first[i+1]], ws.reporter)
		}
	}
}

// accumulate adds the gradient of a layer's parameters. at is the layer's index in
// Network.deferred; such a layer adds only the part that it does not defer. at is negative for
// other layers.
func (ws *workspace) accumulate(layer, at int, grad [][]float32) {
	if at < 0 {
		ws.layers[layer].accumulate(ws.delta, grad, ws.reporter)
		return
	}
	for len(ws.deferred) <= at {
		ws.deferred = append(ws.deferred, nil)
	}
	ws.deferred[at] = ws.delta
	ws.layers[layer].(deferrable).accumulateFirst(ws.delta, grad, ws.reporter)
}

// callBytes limits the work space for the samples of one call. With larger work spaces convolutions
// take a tenth longer, because of more cache misses.
const callBytes = 64 << 20

// maxSamples returns trainer.Model.MaxSamples: the samples whose work space fits callBytes, at
// least one.
func (n *Network) maxSamples() int {
	size := n.in.Size()
	for _, l := range n.workspaces[0].layers {
		size += l.size()
	}
	return max(1, callBytes/4/size)
}

// forward computes the logits of samples of d and leaves them in ws.delta. If b is not nil, it
// waits for each parameter before it reads the parameter, and returns early with b.Err if this
// error is not nil.
func (n *Network) forward(ws *workspace, d Data, samples []int, b *trainer.Batch) error {
	if len(samples) == 0 {
		return errors.New("nn: no samples: want at least one")
	}
	if err := ws.batch.load(d, samples, n.in.Size(), n.classes); err != nil {
		return err
	}
	ws.delta = ws.batch.inputs
	for i, layer := range ws.layers {
		ws.delta = layer.forward(ws.delta, len(samples), paramWaiter{n.first[i], b})
		if b == nil {
			continue
		}
		if err := b.Err(); err != nil {
			return err
		}
	}
	return nil
}

// evaluation returns the workspace of evaluations, and allocates it in the first call.
func (n *Network) evaluation() *workspace {
	if n.evalWorkspace == nil {
		n.evalWorkspace = n.workspaces[0].clone()
	}
	return n.evalWorkspace
}

// evalBatch is the number of samples that Evaluate computes together.
const evalBatch = 32

// Evaluate returns the score on the samples [first, end) of d. d may differ from the data of New,
// but its inputs must have the same shape. Evaluate may be called during a call of Gradient, from a
// function that trainer.Run calls. If ctx ends, the error wraps its cause.
func (n *Network) Evaluate(ctx context.Context, d Data, first, end int) (trainer.Score, error) {
	score, own := trainer.Score{}, n.evaluation()
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

// Predict returns the most likely class of a sample. The sample must have as many inputs as the
// network. Predict does not change the inputs. Like Evaluate, Predict may be called during a call
// of Gradient.
func (n *Network) Predict(inputs []float32) (int, error) {
	if len(inputs) != n.in.Size() {
		return 0, fmt.Errorf("nn: predict: %d inputs, want %d", len(inputs), n.in.Size())
	}
	own := n.evaluation()
	if err := n.forward(own, Table{Inputs: [][]float32{inputs}, Classes: []int{0}}, []int{0}, nil); err != nil {
		return 0, err
	}
	_, best := sampleLoss(own.delta, 0)
	return best, nil
}
