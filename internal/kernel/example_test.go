package kernel_test

import (
	"fmt"

	"github.com/elrun/elrun/internal/kernel"
)

func ExampleAddAll() {
	dst := make([]float32, 2)
	kernel.AddAll([][]float32{dst}, [][]float32{{1, 2}, {10, 20}, {100, 200}}, 0)
	fmt.Println(dst)
	// Output: [111 222]
}
