package nn

import (
	"fmt"
	"math"

	"github.com/elrun/elrun/trainer"
)

// Shape is the shape of one sample between two layers: C channels of H rows and W columns. A
// plain vector of n elements is Shape{C: n, H: 1, W: 1}.
type Shape struct{ C, H, W int }

// Size returns the number of elements.
func (s Shape) Size() int { return s.C * s.H * s.W }

// String returns the dimensions, as in 8x12x12.
func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.C, s.H, s.W) }

// Layer describes a layer for New. Dense, Conv, Pool and ReLU return a Layer. The zero value is
// invalid.
type Layer struct {
	make func(b builder) (layer, Shape, error)
}

// builder has the inputs for the construction of a layer.
type builder struct {
	in     Shape   // shape of one sample's inputs
	name   string  // prefix of the parameters' names
	rng    *random // generator of the initial weights, for this layer only
	gemmer *gemmer // shared by all layers of the network
}

// layer is a layer of a network, with its parameters and its work space. It is not safe for
// concurrent use. The calls for a batch are forward, accumulate, backward, in this order.
type layer interface {
	params() []trainer.Param
	// shareParams returns a layer with the same parameters and a work space of its own.
	shareParams() layer
	// size returns the number of elements of work space for each sample.
	size() int
	// forward returns the outputs of n samples with the inputs x. The layer owns the outputs. It
	// keeps x and the outputs for backward, so the caller must not change x, but the next layer may
	// overwrite the outputs. forward calls params.wait for each parameter before it reads the
	// parameter.
	forward(x []float32, n int, params paramWaiter) []float32
	// accumulate adds the gradient of params()[i] to grad[i], computed from dy, the gradient of
	// the loss with respect to the outputs of the last forward. It reports finished parts to
	// reporter, the last parameter first and each from its end, as trainer.Batch.Done requires.
	accumulate(dy []float32, grad [][]float32, reporter gradReporter)
	// backward returns the gradient of the loss with respect to x. It is called after accumulate,
	// with the same dy, and may overwrite dy and return it.
	backward(dy []float32) []float32
}

// deferrable is a layer that can defer a part of accumulate until after backward. The deferred
// gradients of the last layers are then computed when the gradients of the first layers are
// complete, so that the reduction of the first layers overlaps with this computation. The calls are
// accumulateFirst, backward and accumulateDeferred; backward leaves dy unchanged. accumulateFirst
// and accumulateDeferred together produce the same bits as accumulate.
type deferrable interface {
	layer
	// split returns the number of first rows of params()[0] whose gradient is deferred to
	// accumulateDeferred. If it returns all rows, the gradients of the other parameters are
	// deferred too.
	split() (rows int)
	// accumulateFirst is the part of accumulate that is not deferred.
	accumulateFirst(dy []float32, grad [][]float32, reporter gradReporter)
	// accumulateDeferred is the deferred part of accumulate, with the same dy as accumulateFirst.
	accumulateDeferred(dy []float32, grad [][]float32, reporter gradReporter)
}

// dense computes y = x W + b. W is stored as [inputs, outputs]. In this layout the products
// skip most zeros in x, which are frequent in images and after ReLU.
type dense struct {
	*gemmer
	in, out int
	w, b    trainer.Param
	x       []float32 // inputs of the last forward; owned by the layer before
	y, dx   []float32
	n       int
}

// Dense is a fully connected layer with the given number of outputs.
func Dense(outputs int) Layer {
	return Layer{func(b builder) (layer, Shape, error) {
		if outputs < 1 {
			return nil, Shape{}, fmt.Errorf("nn: %s: %d outputs, want at least 1", b.name, outputs)
		}
		in := b.in.Size()
		l := &dense{gemmer: b.gemmer, in: in, out: outputs,
			w: b.rng.weights(b.name+".weight", in, in, outputs),
			b: zeros(b.name+".bias", outputs),
		}
		return l, Shape{C: outputs, H: 1, W: 1}, nil
	}}
}

func (d *dense) params() []trainer.Param { return []trainer.Param{d.w, d.b} }

func (d *dense) shareParams() layer {
	return &dense{gemmer: d.gemmer, in: d.in, out: d.out, w: d.w, b: d.b}
}

// size counts the outputs and the gradient of the inputs.
func (d *dense) size() int { return d.in + d.out }

// forward multiplies by W in blocks of rows, from the last to the first, and adds the bias at the
// end. With Model.Waits the updated parameters become available in this order.
func (d *dense) forward(x []float32, n int, params paramWaiter) []float32 {
	d.x, d.n, d.y = x, n, grow(d.y, n*d.out)
	clear(d.y)
	y, inputs, w := asMatrix(d.y, n, d.out), asMatrix(x, n, d.in), asMatrix(d.w.Data, d.in, d.out)
	for end := d.in; end > 0; {
		first := d.pieceBefore(end)
		params.wait(0, first*d.out)
		d.addMul(y, inputs.part(0, first, n, end-first), w.part(first, 0, end-first, d.out))
		end = first
	}
	params.wait(1, 0)
	for i := range n {
		addTo(d.y[i*d.out:(i+1)*d.out], d.b.Data)
	}
	return d.y
}

// pieceSize is the granularity of a large weight matrix, in elements: forward waits for at least
// pieceSize elements at a time, and accumulate reports at least pieceSize elements as finished at a
// time.
const pieceSize = 16 << 10

// pieceRows divides the rows of a piece, so that the products of a piece have whole tiles.
const pieceRows = 64

// pieceBefore returns the first row of the piece of W that ends before row end. A piece is a
// whole number of pieceRows.
func (d *dense) pieceBefore(end int) (first int) {
	rows := (pieceSize/d.out/pieceRows + 1) * pieceRows
	return (end - 1) / rows * rows
}

// accumulate adds db = sum of dy over the samples and dW = x^T dy; it computes dW piece by piece.
func (d *dense) accumulate(dy []float32, grad [][]float32, reporter gradReporter) {
	d.accumulateFirst(dy, grad, reporter)
	d.accumulateDeferred(dy, grad, reporter)
}

// split defers about half of the rows of W. With a third or two thirds, steps are a few per cent
// slower.
func (d *dense) split() int { return d.pieceBefore((d.in + 1) / 2) }

// accumulateFirst adds the gradients of the bias and of the rows of W that are not deferred.
func (d *dense) accumulateFirst(dy []float32, grad [][]float32, reporter gradReporter) {
	for i := range d.n {
		addTo(grad[1], dy[i*d.out:(i+1)*d.out])
	}
	reporter.report(1, 0)
	d.addRows(dy, grad[0], reporter, d.in, d.split())
}

// accumulateDeferred adds the gradient of the deferred rows of W.
func (d *dense) accumulateDeferred(dy []float32, grad [][]float32, reporter gradReporter) {
	d.addRows(dy, grad[0], reporter, d.split(), 0)
}

// addRows adds the gradient of the rows [stop, end) of W, piece by piece from the end.
func (d *dense) addRows(dy, grad []float32, reporter gradReporter, end, stop int) {
	dw, x, delta := asMatrix(grad, d.in, d.out), asMatrix(d.x, d.n, d.in), asMatrix(dy, d.n, d.out)
	for end > stop {
		first := d.pieceBefore(end)
		d.addTransMul(dw.part(first, 0, end-first, d.out), x.part(0, first, d.n, end-first), delta)
		reporter.report(0, first*d.out)
		end = first
	}
}

// backward returns dx = dy W^T.
func (d *dense) backward(dy []float32) []float32 {
	d.dx = grow(d.dx, d.n*d.in)
	clear(d.dx)
	d.addMulTrans(asMatrix(d.dx, d.n, d.in), asMatrix(dy, d.n, d.out), asMatrix(d.w.Data, d.in, d.out))
	return d.dx
}

// relu computes y = max(x, 0) in place.
type relu struct{ y []float32 }

// ReLU is a layer that applies the rectifier max(x, 0) to each element.
func ReLU() Layer {
	return Layer{func(b builder) (layer, Shape, error) { return &relu{}, b.in, nil }}
}

func (r *relu) params() []trainer.Param { return nil }

func (r *relu) shareParams() layer { return &relu{} }

// size is 0, because relu computes in place.
func (r *relu) size() int { return 0 }

func (r *relu) accumulate([]float32, [][]float32, gradReporter) {}

// forward keeps a NaN, so that it reaches the loss. The loop has no branch, here and in backward:
// signs are hard to predict, and mispredictions would cost more than the rest of the loop.
func (r *relu) forward(x []float32, _ int, _ paramWaiter) []float32 {
	for i, v := range x {
		x[i] = max(v, 0)
	}
	r.y = x
	return x
}

// backward zeroes the gradient where the output is zero. The derivative at an input of exactly
// zero is thus 0.
func (r *relu) backward(dy []float32) []float32 {
	for i, y := range r.y[:len(dy)] {
		d := math.Float32bits(dy[i])
		if math.Float32bits(y) == 0 {
			d = 0
		}
		dy[i] = math.Float32frombits(d)
	}
	return dy
}
