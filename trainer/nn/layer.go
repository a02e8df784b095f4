package nn

import (
	"fmt"
	"math"

	"github.com/elrun/elrun/trainer"
)

// Shape is the form of one sample between two layers: channels of rows and
// columns. A plain vector is Shape{C: n, H: 1, W: 1}.
type Shape struct{ C, H, W int }

// Size returns the number of elements.
func (s Shape) Size() int { return s.C * s.H * s.W }

// String returns the sides, as in 8x12x12.
func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.C, s.H, s.W) }

// Layer describes a layer of New: made by Dense, Conv, Pool or ReLU.
type Layer struct {
	make func(b builder) (layer, Shape, error)
}

// builder is what a Layer is made from.
type builder struct {
	in   Shape  // of one sample
	name string // prefix of the parameters' names
	rng  *random
	work *worker
}

// layer is a layer with its parameters and its work space. It is not safe for
// concurrent use.
type layer interface {
	params() []trainer.Param
	// twin returns a layer with the same parameters and a work space of its own.
	twin() layer
	// size returns how many elements it keeps of a sample.
	size() int
	// forward returns the outputs of n samples. They, and x, are used again by
	// backward, and may be changed by the layer after. It waits for its parameters before
	// it reads them.
	forward(x []float32, n int, from source) []float32
	// accumulate takes d loss / d outputs of the last forward, and adds to grad[i] the
	// gradient of params()[i], of which it tells as trainer.Batch.Done says, the last first.
	accumulate(dy []float32, grad [][]float32, told listener)
	// backward comes after accumulate, with the same dy, and returns d loss / d x. It may
	// change dy and may return it.
	backward(dy []float32) []float32
}

// halved is a layer that can put off a part of accumulate until after backward, which
// then leaves dy as it is. The two parts have the bits of accumulate together.
type halved interface {
	layer
	// split returns how many rows of params()[0] are put off, from the first on: all of
	// them if the other parameters are, too.
	split() (rows int)
	begin(dy []float32, grad [][]float32, told listener)
	finish(dy []float32, grad [][]float32, told listener)
}

// dense is y = x W + b with W of inputs rows and outputs columns, so that zeros
// in x, of which images and ReLU have many, are skipped by the product.
type dense struct {
	*worker
	in, out int
	w, b    trainer.Param
	x       []float32 // of the last forward; not owned
	y, dx   []float32
	n       int
}

// Dense is a fully connected layer of so many outputs.
func Dense(outputs int) Layer {
	return Layer{func(b builder) (layer, Shape, error) {
		if outputs < 1 {
			return nil, Shape{}, fmt.Errorf("nn: %s: %d outputs", b.name, outputs)
		}
		in := b.in.Size()
		l := &dense{worker: b.work, in: in, out: outputs,
			w: b.rng.weights(b.name+".weight", in, in, outputs),
			b: zeros(b.name+".bias", outputs),
		}
		return l, Shape{C: outputs, H: 1, W: 1}, nil
	}}
}

func (l *dense) params() []trainer.Param { return []trainer.Param{l.w, l.b} }

func (l *dense) twin() layer { return &dense{worker: l.worker, in: l.in, out: l.out, w: l.w, b: l.b} }

func (l *dense) size() int { return l.in + l.out }

// forward takes some rows of W after the other, and the bias last: in that order their sums
// come in.
func (l *dense) forward(x []float32, n int, from source) []float32 {
	l.x, l.n, l.y = x, n, grow(l.y, n*l.out)
	clear(l.y)
	y, inputs, w := matrix(l.y, n, l.out), matrix(x, n, l.in), matrix(l.w.Data, l.in, l.out)
	for end := l.in; end > 0; {
		first := l.pieceBefore(end)
		from.wait(0, first*l.out)
		l.addMul(y, part(inputs, 0, first, n, end-first), part(w, first, 0, end-first, l.out))
		end = first
	}
	from.wait(1, 0)
	for i := range n {
		addTo(l.y[i*l.out:(i+1)*l.out], l.b.Data)
	}
	return l.y
}

// pieceSize is the least number of elements of large weights that are asked for, and of their
// gradient that are told of, together.
const pieceSize = 16 << 10

// pieceBefore returns the first row of the piece of W that ends before a row. Pieces are whole
// tiles: the product for their gradient has the same bits as that for all.
func (l *dense) pieceBefore(end int) (first int) {
	rows := (pieceSize/l.out/tileRows + 1) * tileRows
	return (end - 1) / rows * rows
}

// accumulate: db = sum of dy over the samples, dW = x^T dy, some rows after the other.
func (l *dense) accumulate(dy []float32, grad [][]float32, told listener) {
	l.begin(dy, grad, told)
	l.finish(dy, grad, told)
}

// split puts off half of W: with a third of it, and with two, steps take some hundredths longer.
func (l *dense) split() int { return l.pieceBefore((l.in + 1) / 2) }

// begin adds the bias and the rows of W that are not put off.
func (l *dense) begin(dy []float32, grad [][]float32, told listener) {
	for i := range l.n {
		addTo(grad[1], dy[i*l.out:(i+1)*l.out])
	}
	told.done(1, 0)
	l.addRows(dy, grad[0], told, l.in, l.split())
}

// finish adds the rest.
func (l *dense) finish(dy []float32, grad [][]float32, told listener) {
	l.addRows(dy, grad[0], told, l.split(), 0)
}

// addRows adds the gradient of the rows of W that lie between two, some after the other.
func (l *dense) addRows(dy, grad []float32, told listener, end, stop int) {
	dw, x, delta := matrix(grad, l.in, l.out), matrix(l.x, l.n, l.in), matrix(dy, l.n, l.out)
	for end > stop {
		first := l.pieceBefore(end)
		l.addTransMul(part(dw, first, 0, end-first, l.out), part(x, 0, first, l.n, end-first), delta)
		told.done(0, first*l.out)
		end = first
	}
}

// backward: dx = dy W^T.
func (l *dense) backward(dy []float32) []float32 {
	l.dx = grow(l.dx, l.n*l.in)
	clear(l.dx)
	l.addMulTrans(matrix(l.dx, l.n, l.in), matrix(dy, l.n, l.out), matrix(l.w.Data, l.in, l.out))
	return l.dx
}

// relu is y = max(x, 0), in place.
type relu struct{ y []float32 }

// ReLU is the rectifier, max(x, 0).
func ReLU() Layer {
	return Layer{func(b builder) (layer, Shape, error) { return &relu{}, b.in, nil }}
}

func (l *relu) params() []trainer.Param { return nil }

func (l *relu) twin() layer { return &relu{} }

func (l *relu) size() int { return 0 }

func (l *relu) accumulate([]float32, [][]float32, listener) {}

// forward keeps NaN, which must be seen by the loss. Here as in backward half of all elements
// go either way: a jump for each would cost more than all the rest.
func (l *relu) forward(x []float32, _ int, _ source) []float32 {
	for i, v := range x {
		x[i] = max(v, 0)
	}
	l.y = x
	return x
}

// backward stops the gradient where the output was cut off. At exactly zero the
// derivative is taken as 0.
func (l *relu) backward(dy []float32) []float32 {
	for i, y := range l.y[:len(dy)] {
		d := math.Float32bits(dy[i])
		if math.Float32bits(y) == 0 {
			d = 0
		}
		dy[i] = math.Float32frombits(d)
	}
	return dy
}
