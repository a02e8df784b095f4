// Package nn holds small models with hand-written gradients: softmax regression,
// multi-layer perceptrons and convolutional networks. They compute on one thread, with gonum's
// blas32 for the arithmetic.
//
//	network, err := nn.New(train, nn.Shape{C: 1, H: 28, W: 28}, seed,
//		nn.Dense(128), nn.ReLU(), nn.Dense(10))
//	err = trainer.Run(ctx, group, network.Model(), config)
//	score, err := network.Evaluate(ctx, test, 0, test.Len())
//
// The last layer's outputs are the logits of the classes; the loss is the cross
// entropy of their softmax.
//
// Activations are stored sample by sample, within a sample channel by channel,
// within a channel row by row. All samples of a call go through a layer together,
// so that each layer costs one matrix product. Work space is kept between calls:
// calls of the same size or smaller allocate nothing.
//
// A gradient depends on the parameters, the samples and their order alone, to the
// bit, if it is added to zeros: neither on earlier calls nor on addresses. Exact mode
// (package trainer/exact) needs that. Kernels for vectors add up in another order
// when an operand lies at another address modulo 16, so parameters and work space
// start at multiples of exact.Alignment.
package nn
