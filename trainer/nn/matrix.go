package nn

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/elrun/elrun/trainer"
)

// matrix returns a view of v as a row-major matrix of rows x cols.
func matrix(v []float32, rows, cols int) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: v}
}

// gemmer computes the matrix products of a network in parts of at most a few milliseconds, and
// yields the processor between them, so that communication makes progress. All layers of a network
// share one gemmer.
type gemmer struct {
	batch   *trainer.Batch // the batch whose gradient is being computed; nil outside of a run
	scratch []float32      // the result of transposed
}

// yield yields the processor between two parts of a computation.
func (g *gemmer) yield() {
	if g.batch != nil {
		g.batch.Yield()
	}
}

// addMul adds a * b to c.
func (g *gemmer) addMul(c, a, b blas32.General) {
	if hasShortRows(b) {
		g.gemm(blas.NoTrans, blas.Trans, c, a, g.transposed(b))
		return
	}
	g.gemm(blas.NoTrans, blas.NoTrans, c, a, b)
}

// addTransMul adds the transpose of a, times b, to c.
func (g *gemmer) addTransMul(c, a, b blas32.General) {
	if hasShortRows(c) {
		t := g.transposed(c)
		g.gemm(blas.Trans, blas.NoTrans, t, b, a)
		transpose(c, t)
		return
	}
	g.gemm(blas.Trans, blas.NoTrans, c, a, b)
}

// addMulTrans adds a times the transpose of b to c.
func (g *gemmer) addMulTrans(c, a, b blas32.General) {
	if hasShortRows(b) {
		g.gemm(blas.NoTrans, blas.NoTrans, c, a, g.transposed(b))
		return
	}
	g.gemm(blas.NoTrans, blas.Trans, c, a, b)
}

// hasShortRows reports whether the rows of m are so short that gonum's inner loops are mostly
// overhead, as with the weights of a layer of ten classes. A product with the transpose takes
// between a half and a ninth of the time, plus the time of the transposition.
func hasShortRows(m blas32.General) bool {
	const most = 16
	return m.Cols <= most && m.Cols < m.Rows
}

// transposed returns the transpose of m in g.scratch. It is valid until the next call.
func (g *gemmer) transposed(m blas32.General) blas32.General {
	g.scratch = grow(g.scratch, m.Rows*m.Cols)
	t := matrix(g.scratch, m.Cols, m.Rows)
	transpose(t, m)
	return t
}

// transpose writes the transpose of m to t.
func transpose(t, m blas32.General) {
	for i := range m.Rows {
		for j, x := range m.Data[i*m.Stride:][:m.Cols] {
			t.Data[j*t.Stride+i] = x
		}
	}
}

// The size of a tile of the result of a product, in rows and columns. gonum splits a product
// whose result has four or more blocks of 64 x 64 among goroutines, which costs allocations, and
// copies blocks. A peer computes on one thread. A tile has three such blocks, so gonum computes
// it directly, 1.2 to 2.5 times as fast.
const (
	tileRows = 64
	tileCols = 192
)

// tileArea is the number of elements of a and b that are multiplied into a tile of c at a time.
// These elements are read repeatedly and stay in the L2 cache. Without the limit, products over all
// kernel positions of all samples would read from the L3 cache, which is slower and which all peers
// of a host share.
const tileArea = 128 << 10

// gemm adds op(a) * op(b) to c, tile by tile, and yields after each product. The order of the sums
// depends only on the shapes and on the alignment of the vectors, not on the load of the machine.
func (g *gemmer) gemm(opA, opB blas.Transpose, c, a, b blas32.General) {
	terms := a.Cols
	if opA == blas.Trans {
		terms = a.Rows
	}
	for i := 0; i < c.Rows; i += tileRows {
		rows := min(tileRows, c.Rows-i)
		for j := 0; j < c.Cols; j += tileCols {
			cols := min(tileCols, c.Cols-j)
			depth := tileArea / (rows + cols)
			for k := 0; k < terms; k += depth {
				n := min(depth, terms-k)
				blas32.Gemm(opA, opB, 1, tile(opA, a, i, k, rows, n), tile(opB, b, k, j, n, cols),
					1, part(c, i, j, rows, cols))
				g.yield()
			}
		}
	}
}

// tile returns the view of m that holds the rows x cols elements of op(m) that begin at row i and
// column j.
func tile(op blas.Transpose, m blas32.General, i, j, rows, cols int) blas32.General {
	if op == blas.Trans {
		return part(m, j, i, cols, rows)
	}
	return part(m, i, j, rows, cols)
}

// part returns a view of the rows x cols elements of m that begin at row i and column j.
func part(m blas32.General, i, j, rows, cols int) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: m.Stride, Data: m.Data[i*m.Stride+j:]}
}

// addTo adds v to dst, which has the same length.
func addTo(dst, v []float32) {
	blas32.Axpy(1, blas32.Vector{N: len(v), Inc: 1, Data: v}, blas32.Vector{N: len(dst), Inc: 1, Data: dst})
}
