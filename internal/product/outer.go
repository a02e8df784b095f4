package product

import (
	"math"
	"slices"
)

// Outer adds a product to v.C. For all rows r, lines l and i < Lanes,
//
//	c[r.C+l.C+i] += a[r.A+t.A] * b[t.B+l.B+i], for one term t after the other.
//
// An element of c must occur in one line only, or in the two lines 2n and 2n+1. With skipZeros terms
// whose factors in a are zero in all rows of a tile are left out, which is faster if a has many
// zeros and there are many lines. Outer panics if an offset is out of range.
func (m *Multiplier) Outer(v Operands, rows []Row, terms []Term, lines []Line, skipZeros bool) {
	if len(rows) == 0 || len(terms) == 0 || len(lines) == 0 {
		return
	}
	checkOuter(v, rows, terms, lines)
	even := len(lines) / pair * pair
	m.last = [pair]Line{lines[len(lines)-1], lines[len(lines)-1]}
	t := &m.tile
	t.Operands, t.terms = v, terms
	for len(rows) > 0 {
		rows = t.take(rows)
		if skipZeros {
			m.kept = nonzero(m.kept, v.A, t.rows, terms)
			t.terms = m.kept
		}
		m.outer(lines[:even])
		if even < len(lines) {
			m.outer(m.last[:])
		}
	}
	t.release()
}

// outer computes the pairs of lines of a tile's rows.
func (m *Multiplier) outer(lines []Line) {
	t := &m.tile
	t.lines = lines
	if len(t.lines) == 0 || len(t.terms) == 0 {
		return
	}
	if m.plain || !vectors(t, false) {
		outerLoop(t)
	}
}

// nonzero returns the terms whose factors in a are not zero in all rows, in the memory of to. The
// loop has no branch, because zeros are hard to predict.
func nonzero(to []Term, a []float32, rows [quad]Row, terms []Term) []Term {
	to = slices.Grow(to[:0], len(terms))[:len(terms)]
	a0, a1, a2, a3 := a[rows[0].A:], a[rows[1].A:], a[rows[2].A:], a[rows[3].A:]
	n := 0
	for _, t := range terms {
		to[n] = t
		signed := math.Float32bits(a0[t.A]) | math.Float32bits(a1[t.A]) | math.Float32bits(a2[t.A]) | math.Float32bits(a3[t.A])
		if signed<<1 != 0 {
			n++
		}
	}
	return to[:n]
}

// outerLoop is the assembly of Outer in Go. It stores a tile only when all of it is computed, because
// rows and lines of a tile may repeat. The products are converted, so that the compiler does not fuse
// them with the additions.
func outerLoop(t *tile) {
	for lines := t.lines; len(lines) > 0; lines = lines[pair:] {
		for i, r := range t.rows {
			for j, l := range lines[:pair] {
				outerLine(&t.sums[i*pair+j], t.C[r.C+l.C:], t.A[r.A:], t.B[l.B:], t.terms)
			}
		}
		for i, r := range t.rows {
			for j, l := range lines[:pair] {
				copy(t.C[r.C+l.C:], t.sums[i*pair+j][:])
			}
		}
	}
}

// outerLine adds the terms of one row and one line to c, and writes the result to sums.
func outerLine(sums *[Lanes]float32, c, a, b []float32, terms []Term) {
	s := [Lanes]float32(c)
	s0, s1, s2, s3, s4, s5, s6, s7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
	for _, t := range terms {
		x, y := a[t.A], b[t.B:t.B+Lanes]
		s0 += float32(x * y[0])
		s1 += float32(x * y[1])
		s2 += float32(x * y[2])
		s3 += float32(x * y[3])
		s4 += float32(x * y[4])
		s5 += float32(x * y[5])
		s6 += float32(x * y[6])
		s7 += float32(x * y[7])
	}
	*sums = [Lanes]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}

// AppendLines appends the lines of n consecutive columns, which are at the same offsets in b. The
// last line overlaps with its partner if n is not a multiple of Lanes. n must be at least Lanes.
func AppendLines(to []Line, n int) []Line {
	if n < Lanes {
		panic("product: lines of fewer columns than Lanes")
	}
	if n%Lanes != 0 && n/Lanes%pair == 0 { // the first line is alone, so that the last one has a partner
		to = append(to, Line{})
	}
	i := 0
	for ; i+Lanes <= n; i += Lanes {
		to = append(to, Line{i, i})
	}
	if i < n {
		to = append(to, Line{n - Lanes, n - Lanes})
	}
	return to
}

// checkOuter panics if an offset of Outer is out of range.
func checkOuter(v Operands, rows []Row, terms []Term, lines []Line) {
	rowC, rowA := rowSpans(rows)
	termA, termB := termSpans(terms)
	var lineC, lineB span
	for _, l := range lines {
		lineC.add(l.C)
		lineB.add(l.B)
	}
	check("c", v.C, rowC, lineC, Lanes)
	check("a", v.A, rowA, termA, 1)
	check("b", v.B, termB, lineB, Lanes)
}
