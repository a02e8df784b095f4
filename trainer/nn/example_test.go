package nn_test

import (
	"fmt"

	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// A network can be trained without a group, by a loop of one's own.
func ExampleNetwork() {
	xor := nn.Table{
		Inputs:  [][]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}},
		Classes: []int{0, 1, 1, 0},
	}
	model, err := nn.MLP(xor, nn.Shape{C: 2, H: 1, W: 1}, []int{8}, 2, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	rule := optim.SGD{}
	for step := int64(1); step <= 500; step++ {
		var grad [][]float32
		for _, p := range model.Params() {
			grad = append(grad, make([]float32, len(p.Data)))
		}
		if _, err := model.Model().Accumulate(grad, []int{0, 1, 2, 3}, nil); err != nil {
			fmt.Println(err)
			return
		}
		for i, p := range model.Params() {
			rule.Update(step, 0.1, p.Data, grad[i], nil)
		}
	}
	for _, inputs := range xor.Inputs {
		class, err := model.Predict(inputs)
		fmt.Println(inputs, class, err)
	}
	// Output:
	// [0 0] 0 <nil>
	// [0 1] 1 <nil>
	// [1 0] 1 <nil>
	// [1 1] 0 <nil>
}
