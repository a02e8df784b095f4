// Package compress has lossy codings that reduce the bytes of gradients between peers:
//
//	fp16     half the bytes: 11 significant bits of each value, one exponent for each block
//	bf16     half the bytes: 8 significant bits of each value
//	int8     a quarter of the bytes: each value as one of 255 levels, scaled by block
//	topk:F   the fraction F of the values, the largest ones, at 3.4 bytes each if F is 0.01;
//	         more in the first steps (At)
//	topk:F:2bit
//	         the same values as a sign and one of two magnitudes of their chunk, 1.7 bytes each
//
// A coding is used with collective.AllReduceCoded, which leaves the coding error at each rank. With
// error feedback this error is added to the next gradients, so that it is sent later and not lost:
//
//	coding, err := compress.Parse("topk:0.01")
//	for step := range steps {
//		v := gradients plus rest
//		err := collective.AllReduceCoded(ctx, comm, sum, v, compress.At(coding, step+1))
//		rest = v
//	}
//
// Package trainer does this for trainer.Gradients.Compression. Sources: for error feedback 1-bit SGD
// (Seide, Fu, Droppo, Li, Yu 2014); for its convergence Error Feedback Fixes SignSGD
// (Karimireddy, Rebjock, Stich, Jaggi 2019); for top-k Sparsified SGD with Memory (Stich,
// Cordonnier, Jaggi 2018) and Deep Gradient Compression (Lin, Han, Mao, Wang, Dally 2018); for
// values of 2 bits SparseLoCo (arXiv 2508.15706 and 2603.08163).
//
// Values that are not finite are preserved: a vector with an infinity or a NaN is decoded to a
// vector with an infinity or a NaN, so that the training detects it and ends.
package compress
