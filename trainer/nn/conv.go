package nn

import (
	"fmt"
	"slices"

	"github.com/elrun/elrun/internal/product"
	"github.com/elrun/elrun/trainer"
)

// conv is a convolution without padding, with stride 1. It is a product of the weights with the
// patches of the input under the kernel,
//
//	outputs [filters, positions] = W [filters, patch] * patches [patch, positions]
//
// but the patches are not copied (as im2col does: Chellapilla, Puri and Simard, High performance
// convolutional neural networks for document processing, 2006). The row of an element of the patch
// is the input itself, from the offset of that element on, so the products read the inputs at the
// offsets of package product. The gradients use the same offsets.
type conv struct {
	*gemmer
	in, out Shape
	kernel  int
	w, b    trainer.Param
	x       []float32 // inputs of the last forward; owned by the layer before
	n       int       // samples of the last forward
	y, dx   []float32
	// Images of one block with longer rows, if the rows of the outputs are no whole lines; otherwise
	// unused.
	longX, longY []float32
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

// size counts the outputs and the gradient of the inputs.
func (c *conv) size() int { return c.out.Size() + c.in.Size() }

// positions is the number of positions of the kernel on a sample.
func (c *conv) positions() int { return c.out.H * c.out.W }

// patch is the number of inputs under the kernel.
func (c *conv) patch() int { return c.in.C * c.kernel * c.kernel }

// blockSize limits the inputs and outputs of a block, in elements, so that they fit the cache. A
// block has at least one sample, even if that exceeds the limit.
const blockSize = 32 << 10

// block is a range of the samples of the last forward pass. Its images have rows of whole lines: if
// the layer's have not, they are copies.
type block struct {
	first, n int   // the samples [first, first+n)
	in, out  Shape // of its images
}

// blocks iterates over the c.n samples in blocks of at most blockSize elements.
func (c *conv) blocks(yield func(b block) bool) {
	b := block{in: c.in, out: c.out}
	b.out.W = (c.out.W + product.Lanes - 1) / product.Lanes * product.Lanes
	b.in.W += b.out.W - c.out.W
	most := max(1, blockSize/(b.in.Size()+b.out.Size()))
	for b.first = 0; b.first < c.n; b.first += most {
		b.n = min(most, c.n-b.first)
		if !yield(b) {
			return
		}
	}
}

// isLong reports whether the rows of the block's images are longer than those of the layer's.
func (b block) isLong(c *conv) bool { return b.out.W > c.out.W }

// slice returns the block's part of v, a vector over all samples with size elements for each.
func (b block) slice(v []float32, size int) []float32 { return v[b.first*size : (b.first+b.n)*size] }

// inputs returns the block's images of the inputs.
func (c *conv) inputs(b block) []float32 {
	x := b.slice(c.x, c.in.Size())
	if b.isLong(c) {
		c.longX = grow(c.longX, b.n*b.in.Size())
		return resize(c.longX, x, b.in.W, c.in.W)
	}
	return x
}

// outputGrads returns the block's images of dy, the gradient of the outputs.
func (c *conv) outputGrads(b block, dy []float32) []float32 {
	dy = b.slice(dy, c.out.Size())
	if b.isLong(c) {
		c.longY = grow(c.longY, b.n*b.out.Size())
		return resize(c.longY, dy, b.out.W, c.out.W)
	}
	return dy
}

// resize copies the rows of src, of from elements, to dst, whose rows have to elements, and returns
// dst. Longer rows end in zeros.
func resize(dst, src []float32, to, from int) []float32 {
	for rest := dst; len(rest) > 0; rest, src = rest[to:], src[from:] {
		clear(rest[copy(rest[:to], src[:from]):to])
	}
	return dst
}

// forward waits for the parameters first.
func (c *conv) forward(x []float32, n int, params paramWaiter) []float32 {
	c.x, c.n, c.y = x, n, grow(c.y, n*c.out.Size())
	params.wait(0, 0)
	params.wait(1, 0)
	for b := range c.blocks {
		y := b.slice(c.y, c.out.Size())
		if b.isLong(c) {
			c.longY = grow(c.longY, b.n*b.out.Size())
			y = c.longY
		}
		plane := b.out.H * b.out.W
		for i := range b.n * b.out.C {
			fill(y[i*plane:(i+1)*plane], c.b.Data[i%b.out.C])
		}
		c.rows = c.rows[:0]
		for f := range c.out.C {
			c.rows = append(c.rows, product.Row{C: f * plane, A: f * c.patch()})
		}
		c.terms = c.terms[:0]
		for p := range c.patch() {
			c.terms = append(c.terms, product.Term{A: p, B: c.offset(b, p)})
		}
		c.lines = c.lines[:0]
		for s := range b.n {
			for in, out := range b.eachLine {
				c.lines = append(c.lines, product.Line{C: s*b.out.Size() + out, B: s*b.in.Size() + in})
			}
		}
		c.multiplier.Outer(product.Operands{C: y, A: c.w.Data, B: c.inputs(b)}, c.rows, c.terms, c.lines, false)
		if b.isLong(c) {
			resize(b.slice(c.y, c.out.Size()), y, c.out.W, b.out.W)
		}
		c.yield()
	}
	return c.y
}

// offset returns the offset in an image of the inputs of element p of the patch at the first
// position.
func (c *conv) offset(b block, p int) int {
	channel, ky, kx := p/(c.kernel*c.kernel), p/c.kernel%c.kernel, p%c.kernel
	return (channel*b.in.H+ky)*b.in.W + kx
}

// eachLine iterates over the lines of kernel positions of a sample and a filter, with the offset of
// the first element under the kernel in the image of the inputs, and of the line in that of the
// outputs.
func (b block) eachLine(yield func(in, out int) bool) {
	for y := range b.out.H {
		for x := 0; x < b.out.W; x += product.Lanes {
			if !yield(y*b.in.W+x, y*b.out.W+x) {
				return
			}
		}
	}
}

// split defers all rows, because even the gradient of a few weights takes a product over all
// positions and samples.
func (c *conv) split() int { return c.out.C }

// accumulateFirst computes no gradient, because split defers all of it.
func (c *conv) accumulateFirst([]float32, [][]float32, gradReporter) {}

// accumulateDeferred computes the whole gradient, as accumulateFirst has computed no part of it.
func (c *conv) accumulateDeferred(dy []float32, grad [][]float32, reporter gradReporter) {
	c.accumulate(dy, grad, reporter)
}

// accumulate adds to the gradient of each weight the dot product of its filter's dy and of the
// inputs that the weight multiplies.
func (c *conv) accumulate(dy []float32, grad [][]float32, reporter gradReporter) {
	for i := range c.n * c.out.C {
		grad[1][i%c.out.C] += sum(dy[i*c.positions() : (i+1)*c.positions()])
	}
	for b := range c.blocks {
		c.rows = c.rows[:0]
		for f := range c.out.C {
			c.rows = append(c.rows, product.Row{C: f * c.patch(), A: f * b.out.H * b.out.W})
		}
		c.columns = c.columns[:0]
		for p := range c.patch() {
			c.columns = append(c.columns, product.Column{C: p, B: c.offset(b, p)})
		}
		c.terms = c.terms[:0]
		for s := range b.n {
			for in, out := range b.eachLine {
				c.terms = append(c.terms, product.Term{A: s*b.out.Size() + out, B: s*b.in.Size() + in})
			}
		}
		c.multiplier.Dots(product.Operands{C: grad[0], A: c.outputGrads(b, dy), B: c.inputs(b)}, c.rows, c.columns, c.terms)
		c.yield()
	}
	reporter.report(1, 0)
	reporter.report(0, 0)
}

// backward adds dy, times the weights of one element of the kernel after the other, to the inputs
// under that element.
func (c *conv) backward(dy []float32) []float32 {
	c.dx = grow(c.dx, c.n*c.in.Size())
	clear(c.dx)
	for b := range c.blocks {
		dx := b.slice(c.dx, c.in.Size())
		if b.isLong(c) {
			c.longX = grow(c.longX, b.n*b.in.Size())
			dx = c.longX
			clear(dx)
		}
		c.rows = c.rows[:0]
		for channel := range c.in.C {
			c.rows = append(c.rows, product.Row{C: channel * b.in.H * b.in.W, A: channel * c.kernel * c.kernel})
		}
		c.terms = c.terms[:0]
		for f := range c.out.C {
			c.terms = append(c.terms, product.Term{A: f * c.patch(), B: f * b.out.H * b.out.W})
		}
		c.lines = c.lines[:0]
		for s := range b.n {
			for in, out := range b.eachLine {
				c.lines = append(c.lines, product.Line{C: s*b.in.Size() + in, B: s*b.out.Size() + out})
			}
		}
		own := c.outputGrads(b, dy)
		for k := range c.kernel * c.kernel {
			c.multiplier.Outer(product.Operands{C: dx[c.offset(b, k):], A: c.w.Data[k:], B: own}, c.rows, c.terms, c.lines, false)
		}
		if b.isLong(c) {
			resize(b.slice(c.dx, c.in.Size()), dx, c.in.W, b.in.W)
		}
		c.yield()
	}
	return c.dx
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
// below. Of equal elements the first wins. A NaN always wins, so that it reaches the loss. Without a
// NaN there is no branch, because the place of the largest is hard to predict.
func largest(x []float32, first, width int) int {
	top, below := x[first:first+2], x[first+width:first+width+2]
	if sum := top[0] + top[1] + below[0] + below[1]; sum != sum {
		return largestOrNaN(x, first, width)
	}
	best, other := first, first+width
	if top[1] > top[0] {
		best = first + 1
	}
	if below[1] > below[0] {
		other = first + width + 1
	}
	if x[other] > x[best] {
		best = other
	}
	return best
}

// largestOrNaN is largest for elements that may be NaN.
func largestOrNaN(x []float32, first, width int) int {
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

// sum returns the sum of v in eight interleaved partial sums, whose order is fixed.
func sum(v []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(v) >= 8 {
		s0 += v[0]
		s1 += v[1]
		s2 += v[2]
		s3 += v[3]
		s4 += v[4]
		s5 += v[5]
		s6 += v[6]
		s7 += v[7]
		v = v[8:]
	}
	for _, x := range v {
		s0 += x
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}
