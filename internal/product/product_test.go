package product

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// shape is a product with c of m x n elements, and k terms for each of them.
type shape struct{ m, n, k int }

// shapes draws a shape with small sides and sides around the size of a tile.
func shapes(t *rapid.T) shape {
	side := rapid.OneOf(rapid.IntRange(0, 9), rapid.IntRange(10, 40))
	return shape{side.Draw(t, "m"), side.Draw(t, "n"), side.Draw(t, "k")}
}

// vectors returns c, a and b for a shape, with full mantissas and some zeros.
func (s shape) vectors(seed uint64) (c, a, b []float32) {
	next := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			seed = seed*6364136223846793005 + 1442695040888963407
			if v[i] = float32(int32(seed>>32)) / (1 << 31); seed>>62 == 0 {
				v[i] = 0
			}
		}
		return v
	}
	return next(s.m * s.n), next(s.m * s.k), next(s.k * s.n)
}

// outer computes a product of matrices that are stored by rows by Outer. With transposed, a is
// stored by columns. n is at least Lanes, or 0.
func (s shape) outer(m *Multiplier, c, a, b []float32, transposed, skipZeros bool) {
	var rows []Row
	var terms []Term
	var lines []Line
	for i := range s.m {
		rows = append(rows, Row{i * s.n, i * s.k})
		if transposed {
			rows[i].A = i
		}
	}
	for l := range s.k {
		terms = append(terms, Term{l, l * s.n})
		if transposed {
			terms[l].A = l * s.m
		}
	}
	if s.n > 0 {
		lines = AppendLines(nil, s.n)
	}
	m.Outer(Operands{c, a, b}, rows, terms, lines, skipZeros)
}

// dots computes a product with the transpose of b, which is stored by columns, by Dots. k is a
// multiple of Lanes.
func (s shape) dots(m *Multiplier, c, a, b []float32) {
	var rows []Row
	var columns []Column
	var terms []Term
	for i := range s.m {
		rows = append(rows, Row{i * s.n, i * s.k})
	}
	for j := range s.n {
		columns = append(columns, Column{j, j * s.k})
	}
	for l := 0; l < s.k; l += Lanes {
		terms = append(terms, Term{l, l})
	}
	m.Dots(Operands{c, a, b}, rows, columns, terms)
}

// bits returns the bits of v.
func bits(v []float32) []uint32 {
	var all []uint32
	for _, x := range v {
		all = append(all, math.Float32bits(x))
	}
	return all
}

// Outer adds the terms one by one, in their order.
func TestOuterAgainstTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes(t)
		if s.n < Lanes {
			s.n = 0
		}
		transposed, skipZeros := rapid.Bool().Draw(t, "transposed"), rapid.Bool().Draw(t, "skip zeros")
		c, a, b := s.vectors(rapid.Uint64().Draw(t, "seed"))
		want := slices.Clone(c)
		for i := range s.m {
			for j := range s.n {
				for l := range s.k {
					of := i*s.k + l
					if transposed {
						of = l*s.m + i
					}
					want[i*s.n+j] += float32(a[of] * b[l*s.n+j])
				}
			}
		}
		for _, plain := range []bool{true, false} {
			got := slices.Clone(c)
			s.outer(&Multiplier{plain: plain}, got, a, b, transposed, skipZeros)
			if !slices.Equal(bits(got), bits(want)) {
				t.Fatalf("%+v, plain %v: %v, want %v", s, plain, got, want)
			}
		}
	})
}

// Dots adds the products of each lane in their order, and then the lanes as its comment says.
func TestDotsAgainstTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes(t)
		s.k = s.k / Lanes * Lanes
		c, a, b := s.vectors(rapid.Uint64().Draw(t, "seed"))
		want := slices.Clone(c)
		for i := range s.m {
			for j := range s.n {
				var lanes [Lanes]float32
				for l := range s.k {
					lanes[l%Lanes] += float32(a[i*s.k+l] * b[j*s.k+l])
				}
				for width := Lanes / 2; width > 0; width /= 2 {
					if width < 4 { // neighbours
						for l := range width {
							lanes[l] = lanes[2*l] + lanes[2*l+1]
						}
						continue
					}
					for l := range width {
						lanes[l] += lanes[l+width]
					}
				}
				want[i*s.n+j] += lanes[0]
			}
		}
		for _, plain := range []bool{true, false} {
			got := slices.Clone(c)
			s.dots(&Multiplier{plain: plain}, got, a, b)
			if !slices.Equal(bits(got), bits(want)) {
				t.Fatalf("%+v, plain %v: %v, want %v", s, plain, got, want)
			}
		}
	})
}

// FuzzTwins compares the assembly with the loops in Go for all offsets that are in range. Other
// offsets make both panic, before they have changed anything.
func FuzzTwins(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, false)
	f.Add(uint64(2), []byte{0, 0, 0, 0, 0, 0}, true)
	f.Add(uint64(3), []byte{200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211}, false)
	f.Fuzz(func(t *testing.T, seed uint64, offsets []byte, skipZeros bool) {
		c, a, b := shape{m: 16, n: 12, k: 20}.vectors(seed)
		var rows []Row
		var terms []Term
		var lines []Line
		var columns []Column
		for i := 0; i+6 <= len(offsets); i += 6 {
			o := offsets[i : i+6]
			rows = append(rows, Row{2 * Lanes * i / 6, int(o[0])})
			terms = append(terms, Term{int(o[1]), int(o[2])})
			lines = append(lines, Line{int(o[3]) % Lanes, int(o[4])})
			columns = append(columns, Column{i / 6, int(o[5])})
		}
		lines, rows = lines[:min(2, len(lines))], rows[:min(12, len(rows))]
		run := func(product func(m *Multiplier, c []float32), plain bool) (got []uint32, failed string) {
			own := slices.Clone(c)
			defer func() {
				if r := recover(); r != nil {
					failed = fmt.Sprint(r)
				}
				got = bits(own)
			}()
			product(&Multiplier{plain: plain}, own)
			return nil, ""
		}
		for name, product := range map[string]func(m *Multiplier, c []float32){
			"outer": func(m *Multiplier, c []float32) { m.Outer(Operands{c, a, b}, rows, terms, lines, skipZeros) },
			"dots":  func(m *Multiplier, c []float32) { m.Dots(Operands{c, a, b}, rows, columns, terms) },
		} {
			got, failed := run(product, false)
			want, wantFailed := run(product, true)
			if failed != wantFailed || !slices.Equal(got, want) {
				t.Errorf("%s: %v %q, in Go %v %q", name, got, failed, want, wantFailed)
			}
			if failed != "" && !slices.Equal(got, bits(c)) {
				t.Errorf("%s has changed c before it panicked with %q", name, failed)
			}
		}
	})
}

// A product with each kind of offset past the end, or negative, panics.
func TestOffsetsOutOfRange(t *testing.T) {
	c, a, b := make([]float32, 16), make([]float32, 16), make([]float32, 16)
	outer := func(r Row, t Term, l Line) func() {
		return func() { new(Multiplier).Outer(Operands{c, a, b}, []Row{{}, r}, []Term{t, {}}, []Line{{}, l}, false) }
	}
	dots := func(r Row, t Term, k Column) func() {
		return func() { new(Multiplier).Dots(Operands{c, a, b}, []Row{{}, r}, []Column{{}, k}, []Term{t, {}}) }
	}
	const far = math.MaxInt
	for name, product := range map[string]func(){
		"outer, c":                  outer(Row{C: 1}, Term{}, Line{C: 8}),
		"outer, a":                  outer(Row{A: 1}, Term{A: 15}, Line{}),
		"outer, b":                  outer(Row{}, Term{B: 1}, Line{B: 8}),
		"outer, row of c far away":  outer(Row{C: far}, Term{}, Line{}),
		"outer, line far away":      outer(Row{C: 1}, Term{}, Line{C: far}),
		"outer, negative row of c":  outer(Row{C: -1}, Term{}, Line{C: 1}),
		"outer, negative row of a":  outer(Row{A: -1}, Term{A: 1}, Line{}),
		"outer, negative term of b": outer(Row{}, Term{B: -1}, Line{B: 1}),
		"dots, c":                   dots(Row{C: 15}, Term{}, Column{C: 1}),
		"dots, a":                   dots(Row{A: 1}, Term{A: 8}, Column{}),
		"dots, b":                   dots(Row{}, Term{B: 8}, Column{B: 1}),
		"dots, term far away":       dots(Row{A: 1}, Term{A: far}, Column{}),
		"dots, negative column":     dots(Row{C: 1}, Term{}, Column{C: -1}),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			product()
		})
	}
	outer(Row{8, 8}, Term{7, 7}, Line{0, 1})() // the last elements are in range
	dots(Row{15, 4}, Term{4, 3}, Column{0, 5})()
}

// Products with no more rows and terms than an earlier one allocate nothing.
func TestProductsDoNotAllocate(t *testing.T) {
	var m Multiplier
	s := shape{7, 24, 16}
	c, a, b := s.vectors(1)
	rows, terms, lines, columns := []Row{{0, 0}, {24, 16}}, []Term{{0, 0}, {8, 8}}, AppendLines(nil, 20), []Column{{0, 0}}
	run := func() {
		m.Outer(Operands{c, a, b}, rows, terms, lines, true)
		m.Dots(Operands{c, a, b}, rows, columns, terms)
	}
	run()
	if n := testing.AllocsPerRun(10, run); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// BenchmarkOuter measures the product of a dense layer: 64 samples, 784 inputs, 256 outputs.
func BenchmarkOuter(b *testing.B) {
	s := shape{64, 256, 784}
	for _, plain := range []bool{false, true} {
		b.Run(fmt.Sprintf("plain=%v", plain), func(b *testing.B) {
			m := &Multiplier{plain: plain}
			x, y, z := s.vectors(1)
			for b.Loop() {
				s.outer(m, x, y, z, false, false)
			}
			b.ReportMetric(float64(s.m*s.n*s.k*b.N)/b.Elapsed().Seconds()/1e9, "Gmul/s")
		})
	}
}

// BenchmarkDots measures dot products of 4096 terms.
func BenchmarkDots(b *testing.B) {
	s := shape{16, 200, 4096}
	for _, plain := range []bool{false, true} {
		b.Run(fmt.Sprintf("plain=%v", plain), func(b *testing.B) {
			m := &Multiplier{plain: plain}
			x, y, z := s.vectors(1)
			for b.Loop() {
				s.dots(m, x, y, z)
			}
			b.ReportMetric(float64(s.m*s.n*s.k*b.N)/b.Elapsed().Seconds()/1e9, "Gmul/s")
		})
	}
}
