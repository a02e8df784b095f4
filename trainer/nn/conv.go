package nn

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/trainer"
)

// conv slides kernels over the input, without padding, one place at a time. The
// patches under the kernel are laid out as the columns of a matrix (im2col), one
// column per place and sample, so that
//
//	outputs [filters, n*places] = W [filters, patch] * columns [patch, n*places]
//
// is a product with long rows, the form in which gonum is fastest. The sides are
// then exchanged, as other layers want samples outermost. There is such a product for
// each block of samples, whose columns stay in the cache.
type conv struct {
	*worker
	in, out Shape
	kernel  int
	w, b    trainer.Param
	n       int
	columns []float32 // of the last forward: by block [patch, samples*places]
	rows    []float32 // by block [filters, samples*places]: outputs, or, if turned, their gradient
	turned  bool
	y, dx   []float32
	dcolumn []float32 // of a block
}

// Conv is a layer of so many filters of kernel x kernel.
func Conv(filters, kernel int) Layer {
	return Layer{func(b builder) (layer, Shape, error) {
		if filters < 1 || kernel < 1 || kernel > b.in.H || kernel > b.in.W {
			return nil, Shape{}, fmt.Errorf("nn: %s: %d filters of %d x %d on %v", b.name, filters, kernel, kernel, b.in)
		}
		patch := b.in.C * kernel * kernel
		l := &conv{worker: b.work, in: b.in, out: Shape{filters, b.in.H - kernel + 1, b.in.W - kernel + 1}, kernel: kernel,
			w: b.rng.weights(b.name+".weight", patch, filters, b.in.C, kernel, kernel),
			b: zeros(b.name+".bias", filters),
		}
		return l, l.out, nil
	}}
}

func (l *conv) params() []trainer.Param { return []trainer.Param{l.w, l.b} }

func (l *conv) twin() layer {
	return &conv{worker: l.worker, in: l.in, out: l.out, kernel: l.kernel, w: l.w, b: l.b}
}

func (l *conv) size() int { return l.patch()*l.places() + 2*l.out.Size() + l.in.Size() }

// places is the number of positions of the kernel on a sample.
func (l *conv) places() int { return l.out.H * l.out.W }

// patch is the number of inputs under the kernel.
func (l *conv) patch() int { return l.in.C * l.kernel * l.kernel }

// blockSize is how many elements the columns of a block have, unless one sample has more.
const blockSize = 64 << 10

// block is some samples of the last forward, and their columns and rows.
type block struct {
	first, n      int // samples
	wide          int // places of all of them
	columns, rows []float32
}

// blocks cuts n samples into blocks.
func (l *conv) blocks(yield func(b block) bool) {
	most := max(1, blockSize/(l.patch()*l.places()))
	for first := 0; first < l.n; first += most {
		b := block{first: first, n: min(most, l.n-first)}
		b.wide = b.n * l.places()
		from := first * l.places()
		b.columns = l.columns[from*l.patch() : (from+b.wide)*l.patch()]
		b.rows = l.rows[from*l.out.C : (from+b.wide)*l.out.C]
		if !yield(b) {
			return
		}
	}
}

// of returns the part of a vector of all samples that is the block's; size is that of one.
func (b block) of(v []float32, size int) []float32 { return v[b.first*size : (b.first+b.n)*size] }

func (l *conv) forward(x []float32, n int, from source) []float32 {
	l.n, l.turned = n, false
	l.columns, l.rows = grow(l.columns, l.patch()*n*l.places()), grow(l.rows, l.out.C*n*l.places())
	l.y = grow(l.y, n*l.out.Size())
	for b := range l.blocks {
		l.im2col(b, b.of(x, l.in.Size()))
		if b.first == 0 {
			from.wait(0, 0)
			from.wait(1, 0)
		}
		for f, bias := range l.b.Data {
			fill(b.rows[f*b.wide:(f+1)*b.wide], bias)
		}
		l.addMul(matrix(b.rows, l.out.C, b.wide), matrix(l.w.Data, l.out.C, l.patch()), matrix(b.columns, l.patch(), b.wide))
		exchange(b.of(l.y, l.out.Size()), b.rows, b.n, l.out.C, l.places())
	}
	return l.y
}

// turn puts dy into the rows, unless it is there.
func (l *conv) turn(dy []float32) {
	if l.turned {
		return
	}
	for b := range l.blocks {
		exchange(b.rows, b.of(dy, l.out.Size()), l.out.C, b.n, l.places())
	}
	l.turned = true
}

// split puts off all: the gradient of a few weights takes long.
func (l *conv) split() int { return l.out.C }

// begin has nothing to add that is not put off.
func (l *conv) begin(dy []float32, _ [][]float32, _ listener) { l.turn(dy) }

// finish is accumulate.
func (l *conv) finish(dy []float32, grad [][]float32, told listener) { l.accumulate(dy, grad, told) }

// accumulate reuses the columns of forward.
func (l *conv) accumulate(dy []float32, grad [][]float32, told listener) {
	l.turn(dy)
	for b := range l.blocks {
		for f := range l.out.C {
			grad[1][f] += sum(b.rows[f*b.wide : (f+1)*b.wide])
		}
		l.addMulTrans(matrix(grad[0], l.out.C, l.patch()), matrix(b.rows, l.out.C, b.wide), matrix(b.columns, l.patch(), b.wide))
	}
	told.done(1, 0)
	told.done(0, 0)
}

func (l *conv) backward(dy []float32) []float32 {
	l.turn(dy)
	l.dx = grow(l.dx, l.n*l.in.Size())
	clear(l.dx)
	for b := range l.blocks {
		l.dcolumn = grow(l.dcolumn, l.patch()*b.wide)
		clear(l.dcolumn)
		l.addTransMul(matrix(l.dcolumn, l.patch(), b.wide), matrix(l.w.Data, l.out.C, l.patch()), matrix(b.rows, l.out.C, b.wide))
		l.col2im(b, b.of(l.dx, l.in.Size()))
	}
	return l.dx
}

// im2col copies every element of x to each column whose patch it is in. A line of
// places reads a line of x, so whole lines are copied.
func (l *conv) im2col(b block, x []float32) {
	l.eachLine(b.n, func(image, column int) {
		copy(b.columns[column:column+l.out.W], x[image:image+l.out.W])
	})
}

// col2im is the transpose of im2col: it adds what im2col would copy from.
func (l *conv) col2im(b block, dx []float32) {
	l.eachLine(b.n, func(image, column int) {
		to := dx[image : image+l.out.W]
		for i, v := range l.dcolumn[column : column+l.out.W] {
			to[i] += v
		}
	})
}

// eachLine calls f for every element of the kernel, sample of n and line of places with
// where the line starts in the input and in the columns.
func (l *conv) eachLine(n int, f func(image, column int)) {
	column := 0
	for p := range l.patch() {
		c, ky, kx := p/(l.kernel*l.kernel), p/l.kernel%l.kernel, p%l.kernel
		for line := range n * l.out.H {
			sample, y := line/l.out.H, line%l.out.H
			f(((sample*l.in.C+c)*l.in.H+y+ky)*l.in.W+kx, column)
			column += l.out.W
		}
		l.pause()
	}
}

// exchange copies blocks of size elements from src [inner, outer] to dst [outer,
// inner].
func exchange(dst, src []float32, outer, inner, size int) {
	for o := range outer {
		for i := range inner {
			from := (i*outer + o) * size
			copy(dst[:size], src[from:from+size])
			dst = dst[size:]
		}
	}
}

// pool takes the largest of each 2 x 2 elements; an odd last row or column is
// left out.
type pool struct {
	in, out Shape
	from    []int32 // where each output came from
	y, dx   []float32
	n       int
}

// Pool halves rows and columns, keeping the largest of each 2 x 2 elements.
func Pool() Layer {
	return Layer{func(b builder) (layer, Shape, error) {
		out := Shape{b.in.C, b.in.H / 2, b.in.W / 2}
		if out.Size() == 0 {
			return nil, Shape{}, fmt.Errorf("nn: %s: nothing left of %v", b.name, b.in)
		}
		return &pool{in: b.in, out: out}, out, nil
	}}
}

func (l *pool) params() []trainer.Param { return nil }

func (l *pool) twin() layer { return &pool{in: l.in, out: l.out} }

func (l *pool) size() int { return 2*l.out.Size() + l.in.Size() }

func (l *pool) accumulate([]float32, [][]float32, listener) {}

func (l *pool) forward(x []float32, n int, _ source) []float32 {
	l.n = n
	l.y = grow(l.y, n*l.out.Size())
	l.from = slices.Grow(l.from[:0], len(l.y))[:len(l.y)]
	to := 0
	for line := range n * l.out.C * l.out.H {
		image, y := line/l.out.H, line%l.out.H
		first := (image*l.in.H + 2*y) * l.in.W
		for i := range l.out.W {
			l.from[to+i] = int32(largest(x, first+2*i, l.in.W))
			l.y[to+i] = x[l.from[to+i]]
		}
		to += l.out.W
	}
	return l.y
}

// largest returns which of the four elements at first and in the next row is the
// largest; the first of equals. A NaN that comes first stays, and any other is
// taken, so that it reaches the loss.
func largest(x []float32, first, width int) int {
	best, v := first, x[first]
	for _, i := range [3]int{first + 1, first + width, first + width + 1} {
		if x[i] > v || x[i] != x[i] {
			best, v = i, x[i]
		}
	}
	return best
}

// backward gives each gradient to the input that was the largest; no input is in
// two squares, so nothing has to be added.
func (l *pool) backward(dy []float32) []float32 {
	l.dx = grow(l.dx, l.n*l.in.Size())
	clear(l.dx)
	for i, from := range l.from {
		l.dx[from] = dy[i]
	}
	return l.dx
}
