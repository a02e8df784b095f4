package product

// Dots adds dot products to v.C. For all rows r and columns k,
//
//	c[r.C+k.C] += sum over terms t and i < Lanes of a[r.A+t.A+i] * b[k.B+t.B+i].
//
// The products with the same i are added one after the other, and then these Lanes sums: the sums
// i and i+4, of these the sums i and i+1, and of these the two. An element of c must occur in one
// column only. Dots panics if an offset is out of range.
func (m *Multiplier) Dots(v Operands, rows []Row, columns []Column, terms []Term) {
	if len(rows) == 0 || len(columns) == 0 || len(terms) == 0 {
		return
	}
	checkDots(v, rows, columns, terms)
	m.tile.Operands, m.tile.terms = v, terms
	for len(rows) > 0 {
		others := m.tile.take(rows)
		m.dots(rows[:len(rows)-len(others)], columns)
		rows = others
	}
	m.tile.release()
}

// dots computes the columns of a tile's rows.
func (m *Multiplier) dots(rows []Row, columns []Column) {
	t := &m.tile
	for len(columns) > 0 {
		n := copy(t.columns[:], columns)
		if n < pair {
			t.columns[1] = columns[0]
		}
		if m.plain || !vectors(t, true) {
			dotsLoop(t)
		}
		for i, r := range rows {
			for j, k := range columns[:n] {
				t.C[r.C+k.C] += fold(&t.sums[i*pair+j])
			}
		}
		columns = columns[n:]
	}
}

// fold returns the sum of the lanes.
func fold(v *[Lanes]float32) float32 {
	return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]))
}

// dotsLoop is the assembly of Dots in Go.
func dotsLoop(t *tile) {
	for i, r := range t.rows {
		for j, k := range t.columns {
			dotLanes(&t.sums[i*pair+j], t.A[r.A:], t.B[k.B:], t.terms)
		}
	}
}

// dotLanes computes the partial sums of one dot product.
func dotLanes(sums *[Lanes]float32, a, b []float32, terms []Term) {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for _, t := range terms {
		x, y := a[t.A:t.A+Lanes], b[t.B:t.B+Lanes]
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
		s4 += float32(x[4] * y[4])
		s5 += float32(x[5] * y[5])
		s6 += float32(x[6] * y[6])
		s7 += float32(x[7] * y[7])
	}
	*sums = [Lanes]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}

// checkDots panics if an offset of Dots is out of range.
func checkDots(v Operands, rows []Row, columns []Column, terms []Term) {
	rowC, rowA := rowSpans(rows)
	termA, termB := termSpans(terms)
	var columnC, columnB span
	for _, k := range columns {
		columnC.add(k.C)
		columnB.add(k.B)
	}
	check("c", v.C, rowC, columnC, 1)
	check("a", v.A, rowA, termA, Lanes)
	check("b", v.B, columnB, termB, Lanes)
}
