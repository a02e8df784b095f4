package raw_test

import (
	"fmt"

	"github.com/elrun/elrun/internal/raw"
)

func ExampleAddAll() {
	dst := make([]float32, 2)
	raw.AddAll([][]float32{dst}, [][]float32{{1, 2}, {10, 20}, {100, 200}}, 0)
	fmt.Println(dst)
	// Output: [111 222]
}
