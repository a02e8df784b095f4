// Package nn has small models with hand-written gradients: softmax regression, multi-layer
// perceptrons and convolutional networks. They compute on one thread, with the matrix products of
// internal/product.
//
//	network, err := nn.New(train, nn.Shape{C: 1, H: 28, W: 28}, seed,
//		nn.Dense(128), nn.ReLU(), nn.Dense(10))
//	err = trainer.Run(ctx, group, network.Model(), config)
//	score, err := network.Evaluate(ctx, test, 0, test.Len())
//
// The outputs of the last layer are the logits of the classes. The loss is the cross entropy of
// their softmax.
//
// # Memory
//
// Activations are stored sample by sample, within a sample channel by channel, within a channel
// row by row. All samples of a call go through a layer together, so that a layer is one matrix
// product or a few. Work space is kept between calls: a call with as many samples as an earlier
// one, or fewer, allocates nothing.
//
// # Reproducibility
//
// A gradient that is added to zeros depends only on the parameters, the samples and their order, to
// the bit; earlier calls and addresses have no influence. Exact mode (package trainer/exact) relies
// on this. The products add in an order that depends on the shapes alone, and give the same bits on
// every processor, with vector instructions or without.
package nn
