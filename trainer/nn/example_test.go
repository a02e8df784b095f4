package nn_test

import (
	"fmt"

	"github.com/elrun/elrun/trainer/nn"
	"github.com/elrun/elrun/trainer/optim"
)

// A network can be trained without a group, in a loop of the program itself.
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

// images are four samples of one channel, 12 x 12, of two classes.
func images() nn.Table {
	t := nn.Table{Classes: []int{0, 1, 0, 1}}
	for _, class := range t.Classes {
		pixels := make([]float32, 144)
		for i := range pixels {
			if i%12 < 6 == (class == 0) {
				pixels[i] = 1 // the left half for one class, the right half for the other
			}
		}
		t.Inputs = append(t.Inputs, pixels)
	}
	return t
}

// shapes prints the parameters of a network.
func shapes(n *nn.Network, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range n.Params() {
		fmt.Print(p.Name, p.Shape, " ")
	}
	fmt.Println()
}

// A network can be built layer by layer.
func ExampleNew() {
	shapes(nn.New(images(), nn.Shape{C: 1, H: 12, W: 12}, 1, nn.Dense(8), nn.ReLU(), nn.Dense(2)))
	// Output: layer0.weight[144 8] layer0.bias[8] layer2.weight[8 2] layer2.bias[2]
}

// Logistic regression is one dense layer.
func ExampleSoftmax() {
	shapes(nn.Softmax(images(), nn.Shape{C: 1, H: 12, W: 12}, 2, 1))
	// Output: layer0.weight[144 2] layer0.bias[2]
}

// This network has two hidden layers.
func ExampleMLP() {
	shapes(nn.MLP(images(), nn.Shape{C: 1, H: 12, W: 12}, []int{16, 8}, 2, 1))
	// Output: layer0.weight[144 16] layer0.bias[16] layer2.weight[16 8] layer2.bias[8] layer4.weight[8 2] layer4.bias[2]
}

// This network has a layer of filters before its hidden layer.
func ExampleCNN() {
	shapes(nn.CNN(images(), nn.Shape{C: 1, H: 12, W: 12}, []int{4}, 8, 2, 1))
	// Output: layer0.weight[4 1 5 5] layer0.bias[4] layer3.weight[64 8] layer3.bias[8] layer5.weight[8 2] layer5.bias[2]
}

// A dense layer has a weight for each pair of an input and an output.
func ExampleDense() {
	shapes(nn.New(images(), nn.Shape{C: 1, H: 12, W: 12}, 1, nn.Dense(2)))
	// Output: layer0.weight[144 2] layer0.bias[2]
}

// Four filters of 5 x 5 turn inputs of 12 x 12 into 4 x 8 x 8 outputs.
func ExampleConv() {
	shapes(nn.New(images(), nn.Shape{C: 1, H: 12, W: 12}, 1, nn.Conv(4, 5), nn.Dense(2)))
	// Output: layer0.weight[4 1 5 5] layer0.bias[4] layer1.weight[256 2] layer1.bias[2]
}

// Pooling passes a quarter of the elements on to the next layer.
func ExamplePool() {
	shapes(nn.New(images(), nn.Shape{C: 1, H: 12, W: 12}, 1, nn.Pool(), nn.Dense(2)))
	// Output: layer1.weight[36 2] layer1.bias[2]
}

// A rectifier has no parameters.
func ExampleReLU() {
	shapes(nn.New(images(), nn.Shape{C: 1, H: 12, W: 12}, 1, nn.ReLU(), nn.Dense(2)))
	// Output: layer1.weight[144 2] layer1.bias[2]
}
