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
// is one product with long rows, the form in which gonum is fastest. The sides are
// then exchanged, as other layers want samples outermost.
type conv struct {
	*worker
	in, out Shape
	kernel  int
	w, b    trainer.Param
	n       int
	columns []float32 // [patch, n*places], of the last forward
	rows    []float32 // [filters, n*places]: outputs, or, if turned, their gradient
	turned  bool
	y, dx   []float32
	dcolumn []float32
}

// Conv is a layer of so many filters of kernel x kernel.
func Conv(filters, kernel int) Layer {
	return func(b builder) (layer, Shape, error) {
		if filters < 1 || kernel < 1 || kernel > b.in.H || kernel > b.in.W {
			return nil, Shape{}, fmt.Errorf("nn: %s: %d filters of %d x %d on %v", b.name, filters, kernel, kernel, b.in)
		}
		patch := b.in.C * kernel * kernel
		l := &conv{worker: b.work, in: b.in, out: Shape{filters, b.in.H - kernel + 1, b.in.W - kernel + 1}, kernel: kernel,
			w: b.rng.weights(b.name+".weight", patch, filters, b.in.C, kernel, kernel),
			b: zeros(b.name+".bias", filters),
		}
		return l, l.out, nil
	}
}

func (l *conv) params() []trainer.Param { return []trainer.Param{l.w, l.b} }

// places is the number of positions of the kernel on a sample.
func (l *conv) places() int { return l.out.H * l.out.W }

// patch is the number of inputs under the kernel.
func (l *conv) patch() int { return l.in.C * l.kernel * l.kernel }

func (l *conv) forward(x []float32, n int, asked source) ([]float32, error) {
	wide := n * l.places()
	l.n, l.turned, l.columns = n, false, grow(l.columns, l.patch()*wide)
	l.im2col(x)
	if err := asked.all(2); err != nil {
		return nil, err
	}
	l.rows = grow(l.rows, l.out.C*wide)
	for f, b := range l.b.Data {
		fill(l.rows[f*wide:(f+1)*wide], b)
	}
	l.addMul(matrix(l.rows, l.out.C, wide), matrix(l.w.Data, l.out.C, l.patch()), matrix(l.columns, l.patch(), wide))
	l.y = grow(l.y, n*l.out.Size())
	exchange(l.y, l.rows, n, l.out.C, l.places())
	return l.y, nil
}

// turn puts dy into the rows, unless it is there.
func (l *conv) turn(dy []float32) {
	if !l.turned {
		exchange(l.rows, dy, l.out.C, l.n, l.places())
		l.turned = true
	}
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
	wide := l.n * l.places()
	for f := range l.out.C {
		grad[1][f] += sum(l.rows[f*wide : (f+1)*wide])
	}
	told.ready(1, 0)
	l.addMulTrans(matrix(grad[0], l.out.C, l.patch()), matrix(l.rows, l.out.C, wide), matrix(l.columns, l.patch(), wide))
	told.ready(0, 0)
}

func (l *conv) backward(dy []float32) []float32 {
	l.turn(dy)
	wide := l.n * l.places()
	l.dcolumn = grow(l.dcolumn, l.patch()*wide)
	clear(l.dcolumn)
	l.addTransMul(matrix(l.dcolumn, l.patch(), wide), matrix(l.w.Data, l.out.C, l.patch()), matrix(l.rows, l.out.C, wide))
	l.dx = grow(l.dx, l.n*l.in.Size())
	clear(l.dx)
	l.col2im(l.dx)
	return l.dx
}

// im2col copies every element of x to each column whose patch it is in. A line of
// places reads a line of x, so whole lines are copied.
func (l *conv) im2col(x []float32) {
	l.eachLine(func(image, column int) {
		copy(l.columns[column:column+l.out.W], x[image:image+l.out.W])
	})
}

// col2im is the transpose of im2col: it adds what im2col would copy from.
func (l *conv) col2im(dx []float32) {
	l.eachLine(func(image, column int) {
		to := dx[image : image+l.out.W]
		for i, v := range l.dcolumn[column : column+l.out.W] {
			to[i] += v
		}
	})
}

// eachLine calls f for every element of the kernel, sample and line of places with
// where the line starts in the input and in the columns.
func (l *conv) eachLine(f func(image, column int)) {
	column := 0
	for p := range l.patch() {
		c, ky, kx := p/(l.kernel*l.kernel), p/l.kernel%l.kernel, p%l.kernel
		for line := range l.n * l.out.H {
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
	return func(b builder) (layer, Shape, error) {
		out := Shape{b.in.C, b.in.H / 2, b.in.W / 2}
		if out.Size() == 0 {
			return nil, Shape{}, fmt.Errorf("nn: %s: nothing left of %v", b.name, b.in)
		}
		return &pool{in: b.in, out: out}, out, nil
	}
}

func (l *pool) params() []trainer.Param { return nil }

func (l *pool) accumulate([]float32, [][]float32, listener) {}

func (l *pool) forward(x []float32, n int, _ source) ([]float32, error) {
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
	return l.y, nil
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
