package nn

import (
	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/internal/product"
	"github.com/elrun/elrun/trainer"
)

// matrix is a view of a vector as a row-major matrix. Stride is the distance between rows.
type matrix struct {
	Rows, Cols, Stride int
	Data               []float32
}

// asMatrix returns a view of v as a matrix of rows x cols without gaps.
func asMatrix(v []float32, rows, cols int) matrix {
	return matrix{Rows: rows, Cols: cols, Stride: cols, Data: v}
}

// part returns a view of the rows x cols elements of m that begin at row i and column j.
func (m matrix) part(i, j, rows, cols int) matrix {
	return matrix{Rows: rows, Cols: cols, Stride: m.Stride, Data: m.Data[i*m.Stride+j:]}
}

// gemmer computes the matrix products of a network in parts of at most a few milliseconds, and
// yields the processor between them, so that communication makes progress. All layers of a network
// share one gemmer. The order of the sums depends only on the shapes.
type gemmer struct {
	batch      *trainer.Batch // the batch whose gradient is being computed; nil outside of a run
	multiplier product.Multiplier
	rows       []product.Row
	terms      []product.Term
	lines      []product.Line
	columns    []product.Column
	flipped    []float32 // the result of transposed
	padded     []float32 // the operands of addNarrow
}

// yield yields the processor between two parts of a computation.
func (g *gemmer) yield() {
	if g.batch != nil {
		g.batch.Yield()
	}
}

// addMul adds a * b to c.
func (g *gemmer) addMul(c, a, b matrix) {
	if hasShortRows(b) && a.Cols%product.Lanes == 0 {
		g.addDots(c, a, g.transposed(b))
		return
	}
	g.addOuter(c, a, b, 1, a.Stride)
}

// addTransMul adds the transpose of a, times b, to c.
func (g *gemmer) addTransMul(c, a, b matrix) { g.addOuter(c, a, b, a.Stride, 1) }

// addMulTrans adds a times the transpose of b to c.
func (g *gemmer) addMulTrans(c, a, b matrix) {
	if hasShortRows(b) || a.Cols%product.Lanes != 0 {
		g.addOuter(c, a, g.transposed(b), 1, a.Stride)
		return
	}
	g.addDots(c, a, b)
}

// hasShortRows reports whether the rows of m are so short that vectors along them would be mostly
// padding, or few, as with the weights of a layer of ten classes.
func hasShortRows(m matrix) bool {
	const most = 16
	return m.Cols <= most && m.Cols < m.Rows
}

// transposed returns the transpose of m in g.flipped. It is valid until the next call.
func (g *gemmer) transposed(m matrix) matrix {
	g.flipped = grow(g.flipped, m.Rows*m.Cols)
	t := asMatrix(g.flipped, m.Cols, m.Rows)
	for i := range m.Rows {
		for j, x := range m.Data[i*m.Stride:][:m.Cols] {
			t.Data[j*t.Stride+i] = x
		}
	}
	return t
}

// Limits of a part of a product. The elements of b are read again for each row of c, so those of a
// part stay in the L2 cache. The multiplications of a part take less than a millisecond.
const (
	partSize  = 64 << 10 // elements of b
	partTerms = 4 << 20  // multiplications
)

// addOuter adds to c a product whose terms have one row of b each. The factors of consecutive terms
// are termStep elements apart in a, those of consecutive rows of c rowStep elements.
func (g *gemmer) addOuter(c, a, b matrix, termStep, rowStep int) {
	if c.Cols < product.Lanes {
		g.addNarrow(c, a, b, termStep, rowStep)
		return
	}
	// Many columns are worth the search for zeros, which are frequent in images and after ReLU.
	const columns = 64
	skipZeros := c.Cols >= columns
	g.lines = product.AppendLines(g.lines[:0], c.Cols)
	depth := max(1, partSize/c.Cols)
	for k := 0; k < b.Rows; k += depth {
		g.terms = g.terms[:0]
		for l := k; l < min(k+depth, b.Rows); l++ {
			g.terms = append(g.terms, product.Term{A: l * termStep, B: l * b.Stride})
		}
		height := g.height(c.Cols * len(g.terms))
		for i := 0; i < c.Rows; i += height {
			g.rows = g.rows[:0]
			for r := i; r < min(i+height, c.Rows); r++ {
				g.rows = append(g.rows, product.Row{C: r * c.Stride, A: r * rowStep})
			}
			g.multiplier.Outer(product.Operands{C: c.Data, A: a.Data, B: b.Data}, g.rows, g.terms, g.lines, skipZeros)
			g.yield()
		}
	}
}

// height returns the rows of a part of a product that has so many multiplications for a row.
func (g *gemmer) height(multiplications int) int {
	const tileRows = 4
	return max(1, partTerms/multiplications/tileRows) * tileRows
}

// addNarrow is addOuter for fewer columns than a line has: it pads them with zeros.
func (g *gemmer) addNarrow(c, a, b matrix, termStep, rowStep int) {
	g.padded = grow(g.padded, (c.Rows+b.Rows)*product.Lanes)
	clear(g.padded)
	paddedC := asMatrix(g.padded, c.Rows, product.Lanes)
	paddedB := asMatrix(g.padded[c.Rows*product.Lanes:], b.Rows, product.Lanes)
	copyRows(paddedC, c)
	copyRows(paddedB, b)
	g.addOuter(paddedC, a, paddedB, termStep, rowStep)
	copyRows(c, paddedC)
}

// copyRows copies the first columns of src to dst, as many as both have.
func copyRows(dst, src matrix) {
	for i := range dst.Rows {
		copy(dst.Data[i*dst.Stride:][:dst.Cols], src.Data[i*src.Stride:][:src.Cols])
	}
}

// addDots adds the dot products of the rows of a and b to c. The rows have a multiple of
// product.Lanes elements.
func (g *gemmer) addDots(c, a, b matrix) {
	g.terms = g.terms[:0]
	for l := 0; l < a.Cols; l += product.Lanes {
		g.terms = append(g.terms, product.Term{A: l, B: l})
	}
	width := max(1, partSize/a.Cols)
	for j := 0; j < c.Cols; j += width {
		g.columns = g.columns[:0]
		for k := j; k < min(j+width, c.Cols); k++ {
			g.columns = append(g.columns, product.Column{C: k, B: k * b.Stride})
		}
		height := g.height(a.Cols * len(g.columns))
		for i := 0; i < c.Rows; i += height {
			g.rows = g.rows[:0]
			for r := i; r < min(i+height, c.Rows); r++ {
				g.rows = append(g.rows, product.Row{C: r * c.Stride, A: r * a.Stride})
			}
			g.multiplier.Dots(product.Operands{C: c.Data, A: a.Data, B: b.Data}, g.rows, g.columns, g.terms)
			g.yield()
		}
	}
}

// addTo adds v to dst, which has the same length.
func addTo(dst, v []float32) { kernel.Add(dst, dst, v) }
