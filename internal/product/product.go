// Package product multiplies matrices of float32 whose rows, terms and columns lie at any offsets.
// A convolution is then a product over its inputs themselves, without a copy of the patches.
//
// There are two products, each with a fixed order of additions:
//
//	m.Outer(v, rows, terms, lines, false)  // c += a * b, with vectors along the columns of c
//	m.Dots(v, rows, columns, terms)        // c += a * transpose of b, with vectors along the terms
//
// On amd64 they use AVX2 where the processor has it. Elsewhere, and with the build tag purego, they
// are loops in Go. Both give the same bits, except for the bits of a NaN: each multiplication and
// each addition is rounded, and the order depends on nothing but the arguments.
package product

// Lanes is the number of consecutive elements of a Line, and of a Term of Dots.
const Lanes = 8

// Operands are the matrices of a product. The memory of C must be apart from that of A and B.
type Operands struct{ C, A, B []float32 }

// Row is a row of c, with the offset of its first element, and the row of a that it comes from.
type Row struct{ C, A int }

// Term is a term of the sums: the offset of its factor in a row of a, and of its factors in b. In
// Dots it is Lanes consecutive terms.
type Term struct{ A, B int }

// Line is Lanes consecutive columns of c: the offset of the first one in a row of c, and in the
// factors of a term in b.
type Line struct{ C, B int }

// Column is a column of c in Dots, with its offset in a row of c, and the row of b that it comes
// from.
type Column struct{ C, B int }

// The size of a tile of c, which is computed in registers.
const (
	quad = 4 // rows
	pair = 2 // lines, or columns of Dots
)

// Multiplier has the work space of products. The zero value is ready. It is not safe for
// concurrent use.
type Multiplier struct {
	tile tile
	kept []Term     // terms of a tile without those that are left out
	last [pair]Line // the last line, twice
	// plain makes a processor with assembly use the loops in Go, for tests.
	plain bool
}

// tile is the argument of the functions that compute a tile, or a row of tiles. The assembly knows
// its layout.
type tile struct {
	Operands
	rows    [quad]Row
	terms   []Term
	lines   []Line                      // for outer: an even number, a tile for each pair
	columns [pair]Column                // for dots
	sums    [quad * pair][Lanes]float32 // the result of dots, by row and column
}

// take moves the next rows of a product into the tile, and returns the others. The last tile repeats
// a row if rows are missing. Then the same numbers are computed and stored several times.
func (t *tile) take(rows []Row) (others []Row) {
	n := copy(t.rows[:], rows)
	for i := n; i < quad; i++ {
		t.rows[i] = rows[n-1]
	}
	return rows[n:]
}

// release drops the references to the vectors of the caller.
func (t *tile) release() { t.Operands, t.terms, t.lines = Operands{}, nil, nil }

// span is the range of a set of offsets, and of 0.
type span struct{ first, last int }

// add extends the range to i.
func (s *span) add(i int) {
	s.first, s.last = min(s.first, i), max(s.last, i)
}

// check panics unless length elements at the sum of an offset of x and one of y are in v. The
// assembly relies on it.
func check(name string, v []float32, x, y span, length int) {
	if min(x.first, y.first) < 0 || max(x.last, y.last) > len(v) || x.last+y.last+length > len(v) {
		panic("product: offsets are outside of " + name)
	}
}

// rowSpans returns the ranges of the offsets of rows in c and a.
func rowSpans(rows []Row) (c, a span) {
	for _, r := range rows {
		c.add(r.C)
		a.add(r.A)
	}
	return c, a
}

// termSpans returns the ranges of the offsets of terms in a and b.
func termSpans(terms []Term) (a, b span) {
	for _, t := range terms {
		a.add(t.A)
		b.add(t.B)
	}
	return a, b
}
