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

func (c *conv) params() []trainer.Param { return []trainer.Param{c.w, c.b} }

func (c *conv) shareParams() layer {
	return &conv{gemmer: c.gemmer, in: c.in, out: c.out, kernel: c.kernel, w: c.w, b: c.b}
}

// size counts mostly columns: each input occurs in up to kernel*kernel columns.
func (c *conv) size() int { return c.patch()*c.positions() + 2*c.out.Size() + c.in.Size() }

// positions is the number of positions of the kernel on a sample.
func (c *conv) positions() int { return c.out.H * c.out.W }

// patch is the number of inputs under the kernel.
func (c *conv) patch() int { return c.in.C * c.kernel * c.kernel }

// blockSize limits the columns of a block, in elements: 256 KiB. A block has at least one sample,
// even if that exceeds the limit.
const blockSize = 64 << 10

// block is a range of the samples of the last forward pass, with views of their columns and rows.
type block struct {
	first, n      int // the samples [first, first+n)
	cols          int // kernel positions of all samples of the block
	columns, rows []float32
}

// blocks iterates over the c.n samples in blocks of at most blockSize elements.
func (c *conv) blocks(yield func(b block) bool) {
	most := max(1, blockSize/(c.patch()*c.positions()))
	for first := 0; first < c.n; first += most {
		b := block{first: first, n: min(most, c.n-first)}
		b.cols = b.n * c.positions()
		from := first * c.positions()
		b.columns = c.columns[from*c.patch() : (from+b.cols)*c.patch()]
		b.rows = c.rows[from*c.out.C : (from+b.cols)*c.out.C]
		if !yield(b) {
			return
		}
	}
}

// slice returns the block's part of v, a vector over all samples with size elements for each.
func (b block) slice(v []float32, size int) []float32 { return v[b.first*size : (b.first+b.n)*size] }

// forward multiplies W by the columns of each block. It waits for the parameters after it has
// filled the columns of the first block, which needs no parameters.
func (c *conv) forward(x []float32, n int, params paramWaiter) []float32 {
	c.n, c.rowsHoldGrad = n, false
	c.columns, c.rows = grow(c.columns, c.patch()*n*c.positions()), grow(c.rows, c.out.C*n*c.positions())
	c.y = grow(c.y, n*c.out.Size())
	for b := range c.blocks {
		c.im2col(b, b.slice(x, c.in.Size()))
		if b.first == 0 { // the parameters are now needed
			params.wait(0, 0)
			params.wait(1, 0)
		}
		for f, bias := range c.b.Data {
			fill(b.rows[f*b.cols:(f+1)*b.cols], bias)
		}
		c.addMul(matrix(b.rows, c.out.C, b.cols), matrix(c.w.Data, c.out.C, c.patch()), matrix(b.columns, c.patch(), b.cols))
		transposeBlocks(b.slice(c.y, c.out.Size()), b.rows, b.n, c.out.C, c.positions())
	}
	return c.y
}

// transposeRows copies dy into the rows, with filters outermost, unless the rows hold dy already.
// It overwrites the outputs in the rows, which are no longer needed.
func (c *conv) transposeRows(dy []float32) {
	if c.rowsHoldGrad {
		return
	}
	for b := range c.blocks {
		transposeBlocks(b.rows, b.slice(dy, c.out.Size()), c.out.C, b.n, c.positions())
	}
	c.rowsHoldGrad = true
}

// split defers all rows, because even the gradient of a few weights takes a product over all
// positions and samples.
func (c *conv) split() int { return c.out.C }

// accumulateFirst computes no gradient, because split defers all of it. It only saves dy in the
// rows, so that backward and accumulateDeferred can use it.
func (c *conv) accumulateFirst(dy []float32, _ [][]float32, _ gradReporter) { c.transposeRows(dy) }

// accumulateDeferred computes the whole gradient, as accumulateFirst has computed no part of it.
func (c *conv) accumulateDeferred(dy []float32, grad [][]float32, reporter gradReporter) {
	c.accumulate(dy, grad, reporter)
}

// accumulate multiplies the gradient of the outputs with the columns that forward has stored.
func (c *conv) accumulate(dy []float32, grad [][]float32, reporter gradReporter) {
	c.transposeRows(dy)
	for b := range c.blocks {
		for f := range c.out.C {
			grad[1][f] += sum(b.rows[f*b.cols : (f+1)*b.cols])
		}
		c.addMulTrans(matrix(grad[0], c.out.C, c.patch()), matrix(b.rows, c.out.C, b.cols), matrix(b.columns, c.patch(), b.cols))
	}
	reporter.report(1, 0)
	reporter.report(0, 0)
}

// backward computes the gradient of the columns, W^T * rows, and adds it back to the inputs
// (col2im).
func (c *conv) backward(dy []float32) []float32 {
	c.transposeRows(dy)
	c.dx = grow(c.dx, c.n*c.in.Size())
	clear(c.dx)
	for b := range c.blocks {
		c.dcolumn = grow(c.dcolumn, c.patch()*b.cols)
		clear(c.dcolumn)
		c.addTransMul(matrix(c.dcolumn, c.patch(), b.cols), matrix(c.w.Data, c.out.C, c.patch()), matrix(b.rows, c.out.C, b.cols))
		c.col2im(b, b.slice(c.dx, c.in.Size()))
	}
	return c.dx
}

// im2col copies each element of x into every column whose patch contains it. With stride 1, a row
// of kernel positions reads contiguous elements of x, so whole rows are copied.
func (c *conv) im2col(b block, x []float32) {
	c.eachLine(b.n, func(image, column int) {
		copy(b.columns[column:column+c.out.W], x[image:image+c.out.W])
	})
}

// col2im is the transpose of im2col: it adds each element of the columns' gradient to the input
// element that im2col copied.
func (c *conv) col2im(b block, dx []float32) {
	c.eachLine(b.n, func(image, column int) {
		to := dx[image : image+c.out.W]
		for i, v := range c.dcolumn[column : column+c.out.W] {
			to[i] += v
		}
	})
}

// eachLine calls f for each element of the kernel, each of n samples and each row of kernel
// positions, with the offsets at which that row begins in the input (image) and in the columns
// (column).
func (c *conv) eachLine(n int, f func(image, column int)) {
	column := 0
	for p := range c.patch() {
		channel, ky, kx := p/(c.kernel*c.kernel), p/c.kernel%c.kernel, p%c.kernel
		for line := range n * c.out.H {
			sample, y := line/c.out.H, line%c.out.H
			f(((sample*c.in.C+channel)*c.in.H+y+ky)*c.in.W+kx, column)
			column += c.out.W
		}
		c.yield()
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

func (p *pool) params() []trainer.Param { return nil }

func (p *pool) shareParams() layer { return &pool{in: p.in, out: p.out} }

func (p *pool) size() int { return 2*p.out.Size() + p.in.Size() }

func (p *pool) accumulate([]float32, [][]float32, gradReporter) {}

// forward stores the index of each maximum for backward.
func (p *pool) forward(x []float32, n int, _ paramWaiter) []float32 {
	p.n = n
	p.y = grow(p.y, n*p.out.Size())
	p.from = slices.Grow(p.from[:0], len(p.y))[:len(p.y)]
	to := 0
	for line := range n * p.out.C * p.out.H {
		image, y := line/p.out.H, line%p.out.H
		first := (image*p.in.H + 2*y) * p.in.W
		for i := range p.out.W {
			p.from[to+i] = int32(largest(x, first+2*i, p.in.W))
			p.y[to+i] = x[p.from[to+i]]
		}
		to += p.out.W
	}
	return p.y
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
func (p *pool) backward(dy []float32) []float32 {
	p.dx = grow(p.dx, p.n*p.in.Size())
	clear(p.dx)
	for i, from := range p.from {
		p.dx[from] = dy[i]
	}
	return p.dx
}

// fill sets every element of v to x.
func fill(v []float32, x float32) {
	for i := range v {
		v[i] = x
	}
}

// sum returns the sum of v in four interleaved partial sums. Their order is fixed, so the bits
// are the same on every machine.
func sum(v []float32) float32 {
	var s [4]float32
	for len(v) >= 4 {
		s[0] += v[0]
		s[1] += v[1]
		s[2] += v[2]
		s[3] += v[3]
		v = v[4:]
	}
	for _, x := range v {
		s[0] += x
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}
