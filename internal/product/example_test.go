package product_test

import (
	"fmt"

	"github.com/elrun/elrun/internal/product"
)

// A convolution of a row of ten elements with the kernel {1, 2, 4}: each term reads the row from
// another offset on.
func ExampleMultiplier_Outer() {
	row, kernel := []float32{1, 0, 0, 1, 0, 0, 1, 0, 0, 1}, []float32{1, 2, 4}
	sums := make([]float32, 8)
	var m product.Multiplier
	m.Outer(product.Operands{C: sums, A: kernel, B: row},
		[]product.Row{{}}, []product.Term{{A: 0, B: 0}, {A: 1, B: 1}, {A: 2, B: 2}}, product.AppendLines(nil, 8), false)
	fmt.Println(sums)
	// Output: [1 4 2 1 4 2 1 4]
}

// The dot products of a row of a with two rows of b.
func ExampleMultiplier_Dots() {
	a := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	b := []float32{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2}
	c := make([]float32, 2)
	var m product.Multiplier
	m.Dots(product.Operands{C: c, A: a, B: b},
		[]product.Row{{}}, []product.Column{{C: 0, B: 0}, {C: 1, B: 8}}, []product.Term{{}})
	fmt.Println(c)
	// Output: [36 16]
}
