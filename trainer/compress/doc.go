// Package compress makes gradients shorter on their way between peers, by codings that
// lose something:
//
//	fp16     half the bytes: 11 bits of each value, and one exponent for each block
//	bf16     half the bytes: 8 bits of each value
//	int8     a quarter: each value in 254 equal steps of the largest of its block
//	topk:F   the fraction F of the values that are largest, at 3.4 bytes each if F is 0.01;
//	         more in the first steps (At)
//	topk:F:2bit
//	         the same values as a sign and one of two magnitudes of their chunk, at 1.7 bytes each
//
// A coding is for collective.AllReduceCoded, which leaves at each rank what its code
// lacked; added to the next gradients that is sent later, and not lost:
//
//	coding, err := compress.Parse("topk:0.01")
//	for step := range steps {
//		v := gradients plus rest
//		err := collective.AllReduceCoded(ctx, comm, sum, v, compress.At(coding, step+1))
//		rest = v
//	}
//
// package trainer does this where Config.Compression says so. Sources: 1-bit SGD (Seide,
// Fu, Droppo, Li, Yu 2014) for error feedback, Error Feedback Fixes SignSGD (Karimireddy,
// Rebjock, Stich, Jaggi 2019) for why it converges, Sparsified SGD with Memory (Stich,
// Cordonnier, Jaggi 2018) and Deep Gradient Compression (Lin, Han, Mao, Wang, Dally 2018)
// for the largest values, SparseLoCo (arXiv 2508.15706 and 2603.08163) for values of 2 bits.
//
// What is not finite stays so: a code of a vector with an infinity or a NaN makes a vector
// that has one.
package compress
