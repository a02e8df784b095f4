package nn

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/trainer"
)

// conv is a convolution without padding, with stride 1. The patches of input under the kernel
// become the columns of a matrix (im2col: Chellapilla, Puri and Simard, High performance
// convolutional neural networks for document processing, 2006), one column per kernel position
// and sample. The convolution is then one matrix product
//
//	outputs [filters, n*positions] = W [filters, patch] * columns [patch, n*positions]
//
// with long rows, which gonum multiplies fastest. Afterwards the outputs are transposed from
// [filters, samples] to [samples, filters], as other layers store them. The samples are divided
// into blocks whose columns fit the cache; each block has its own product.
type conv struct {
	*gemmer
	in, out Shape
	kernel  int
	w, b    trainer.Param
	n       int // samples of the last forward
	// columns holds the patches of the last forward pass as columns of a matrix (im2col), by block:
	// [patch, samples*positions].
	columns      []float32
	rows         []float32 // by block: [filters, samples*positions], the outputs, or their gradient if rowsHoldGrad is set
	rowsHoldGrad bool
	y, dx        []float32
	dcolumn      []float32 // gradient of the columns of one block
}

// Conv is a convolutional layer with the given number of filters of kernel x kernel. It has no
// padding and a stride of 1: its outputs have kernel-1 rows and columns fewer than its inputs.
func Conv(filters, kernel int) Layer {
	return Layer{func(b builder) (layer, Shape, error) {
		if filters < 1 || kernel < 1 || kernel > b.in.H || kernel > b.in.W {
			return nil, Shape{}, fmt.Errorf("nn: %s: %d filters of %d x %d on inputs of %v, want at least one filter, of 1 x 1 up to the size of the inputs", b.name, filters, kernel, kernel, b.in)
		}
		patch := b.in.C * kernel * kernel
		l := &conv{gemmer: b.gemmer, in: b.in, out: Shape{filters, b.in.H - kernel + 1, b.in.W - kernel + 1}, kernel: kernel,
			w: b.rng.weights(b.name+".weight", patch, filters, b.in.C, kernel, kernel),
			b: zeros(b.name+".bias", filters),
		}
		return l, l.out, nil
	}}
}

func (l *conv) params() []trainer.Param { return []trainer.Param{l.w, l.b} }

func (l *conv) shareParams() layer {
	return &conv{gemmer: l.gemmer, in: l.in, out: l.out, kernel: l.kernel, w: l.w, b: l.b}
}

// size counts mostly columns: each input occurs in up to kernel*kernel columns.
func (l *conv) size() int { return l.patch()*l.positions() + 2*l.out.Size() + l.in.Size() }

// positions is the number of positions of the kernel on a sample.
func (l *conv) positions() int { return l.out.H * l.out.W }

// patch is the number of inputs under the kernel.
func (l *conv) patch() int { return l.in.C * l.kernel * l.kernel }

// blockSize limits the columns of a block, in elements: 256 KiB. A block has at least one sample,
// even if that exceeds the limit.
const blockSize = 64 << 10

// block is a range of the samples of the last forward pass, with views of their columns and rows.
type block struct {
	first, n      int // the samples [first, first+n)
	cols          int // kernel positions of all samples of the block
	columns, rows []float32
}

// blocks iterates over the l.n samples in blocks of at most blockSize elements.
func (l *conv) blocks(yield func(b block) bool) {
	most := max(1, blockSize/(l.patch()*l.positions()))
	for first := 0; first < l.n; first += most {
		b := block{first: first, n: min(most, l.n-first)}
		b.cols = b.n * l.positions()
		from := first * l.positions()
		b.columns = l.columns[from*l.patch() : (from+b.cols)*l.patch()]
		b.rows = l.rows[from*l.out.C : (from+b.cols)*l.out.C]
		if !yield(b) {
			return
		}
	}
}

// slice returns the block's part of v, a vector over all samples with size elements for each.
func (b block) slice(v []float32, size int) []float32 { return v[b.first*size : (b.first+b.n)*size] }

// forward multiplies W by the columns of each block. It waits for the parameters after it has
// filled the columns of the first block, which needs no parameters.
func (l *conv) forward(x []float32, n int, params paramWaiter) []float32 {
	l.n, l.rowsHoldGrad = n, false
	l.columns, l.rows = grow(l.columns, l.patch()*n*l.positions()), grow(l.rows, l.out.C*n*l.positions())
	l.y = grow(l.y, n*l.out.Size())
	for b := range l.blocks {
		l.im2col(b, b.slice(x, l.in.Size()))
		if b.first == 0 { // the parameters are now needed
			params.wait(0, 0)
			params.wait(1, 0)
		}
		for f, bias := range l.b.Data {
			fill(b.rows[f*b.cols:(f+1)*b.cols], bias)
		}
		l.addMul(matrix(b.rows, l.out.C, b.cols), matrix(l.w.Data, l.out.C, l.patch()), matrix(b.columns, l.patch(), b.cols))
		transposeBlocks(b.slice(l.y, l.out.Size()), b.rows, b.n, l.out.C, l.positions())
	}
	return l.y
}

// transposeRows copies dy into the rows, with filters outermost, unless the rows hold dy already.
// It overwrites the outputs in the rows, which are no longer needed.
func (l *conv) transposeRows(dy []float32) {
	if l.rowsHoldGrad {
		return
	}
	for b := range l.blocks {
		transposeBlocks(b.rows, b.slice(dy, l.out.Size()), l.out.C, b.n, l.positions())
	}
	l.rowsHoldGrad = true
}

// split defers all rows, because even the gradient of a few weights takes a product over all
// positions and samples.
func (l *conv) split() int { return l.out.C }

// accumulateFirst computes no gradient, because split defers all of it. It only saves dy in the
// rows, so that backward and accumulateDeferred can use it.
func (l *conv) accumulateFirst(dy []float32, _ [][]float32, _ gradReporter) { l.transposeRows(dy) }

// accumulateDeferred computes the whole gradient, as accumulateFirst has computed no part of it.
func (l *conv) accumulateDeferred(dy []float32, grad [][]float32, reporter gradReporter) {
	l.accumulate(dy, grad, reporter)
}

// accumulate multiplies the gradient of the outputs with the columns that forward has stored.
func (l *conv) accumulate(dy []float32, grad [][]float32, reporter gradReporter) {
	l.transposeRows(dy)
	for b := range l.blocks {
		for f := range l.out.C {
			grad[1][f] += sum(b.rows[f*b.cols : (f+1)*b.cols])
		}
		l.addMulTrans(matrix(grad[0], l.out.C, l.patch()), matrix(b.rows, l.out.C, b.cols), matrix(b.columns, l.patch(), b.cols))
	}
	reporter.report(1, 0)
	reporter.report(0, 0)
}

// backward computes the gradient of the columns, W^T * rows, and adds it back to the inputs
// (col2im).
func (l *conv) backward(dy []float32) []float32 {
	l.transposeRows(dy)
	l.dx = grow(l.dx, l.n*l.in.Size())
	clear(l.dx)
	for b := range l.blocks {
		l.dcolumn = grow(l.dcolumn, l.patch()*b.cols)
		clear(l.dcolumn)
		l.addTransMul(matrix(l.dcolumn, l.patch(), b.cols), matrix(l.w.Data, l.out.C, l.patch()), matrix(b.rows, l.out.C, b.cols))
		l.col2im(b, b.slice(l.dx, l.in.Size()))
	}
	return l.dx
}

// im2col copies each element of x into every column whose patch contains it. With stride 1, a row
// of kernel positions reads contiguous elements of x, so whole rows are copied.
func (l *conv) im2col(b block, x []float32) {
	l.eachLine(b.n, func(image, column int) {
		copy(b.columns[column:column+l.out.W], x[image:image+l.out.W])
	})
}

// col2im is the transpose of im2col: it adds each element of the columns' gradient to the input
// element that im2col copied.
func (l *conv) col2im(b block, dx []float32) {
	l.eachLine(b.n, func(image, column int) {
		to := dx[image : image+l.out.W]
		for i, v := range l.dcolumn[column : column+l.out.W] {
			to[i] += v
		}
	})
}

// eachLine calls f for each element of the kernel, each of n samples and each row of kernel
// positions, with the offsets at which that row begins in the input (image) and in the columns
// (column).
func (l *conv) eachLine(n int, f func(image, column int)) {
	column := 0
	for p := range l.patch() {
		c, ky, kx := p/(l.kernel*l.kernel), p/l.kernel%l.kernel, p%l.kernel
		for line := range n * l.out.H {
			sample, y := line/l.out.H, line%l.out.H
			f(((sample*l.in.C+c)*l.in.H+y+ky)*l.in.W+kx, column)
			column += l.out.W
		}
		l.yield()
	}
}

// transposeBlocks transposes a matrix whose elements are vectors of size elements: from src [inner,
// outer] to dst [outer, inner].
func transposeBlocks(dst, src []float32, outer, inner, size int) {
	for o := range outer {
		for i := range inner {
			from := (i*outer + o) * size
			copy(dst[:size], src[from:from+size])
			dst = dst[size:]
		}
	}
}

// pool is max pooling over squares of 2 x 2 elements, without overlap. An odd last row or column
// is ignored.
type pool struct {
	in, out Shape
	from    []int32 // index in x of each output's maximum
	y, dx   []float32
	n       int
}

// Pool is a layer of max pooling: it halves rows and columns and keeps the largest of each 2 x 2
// elements. An odd last row or column is ignored.
func Pool() Layer {
	return Layer{func(b builder) (layer, Shape, error) {
		out := Shape{b.in.C, b.in.H / 2, b.in.W / 2}
		if out.Size() == 0 {
			return nil, Shape{}, fmt.Errorf("nn: %s: inputs of %v are too small, want at least 2 rows and 2 columns", b.name, b.in)
		}
		return &pool{in: b.in, out: out}, out, nil
	}}
}

func (l *pool) params() []trainer.Param { return nil }

func (l *pool) shareParams() layer { return &pool{in: l.in, out: l.out} }

func (l *pool) size() int { return 2*l.out.Size() + l.in.Size() }

func (l *pool) accumulate([]float32, [][]float32, gradReporter) {}

// forward stores the index of each maximum for backward.
func (l *pool) forward(x []float32, n int, _ paramWaiter) []float32 {
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

// largest returns the index of the largest of four elements: two at first and two in the row
// below. Of equal elements the first wins. A NaN always wins, so that it reaches the loss.
func largest(x []float32, first, width int) int {
	best, v := first, x[first]
	for _, i := range [3]int{first + 1, first + width, first + width + 1} {
		if x[i] > v || x[i] != x[i] {
			best, v = i, x[i]
		}
	}
	return best
}

// backward passes each gradient to the input that was the largest. The squares do not overlap, so
// no input receives two gradients.
func (l *pool) backward(dy []float32) []float32 {
	l.dx = grow(l.dx, l.n*l.in.Size())
	clear(l.dx)
	for i, from := range l.from {
		l.dx[from] = dy[i]
	}
	return l.dx
}
