package nn

import (
	"math"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/exact"
)

// random is the generator SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number
// generators, 2014). Its numbers are the same on every machine and with every version of Go.
type random struct{ state uint64 }

// next returns the next 64 bits.
func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// symmetric returns a number that is uniformly distributed over [-1, 1). It has 53 random bits, the
// precision of a float64.
func (r *random) symmetric() float64 { return float64(int64(r.next())>>11) / (1 << 52) }

// weights returns a parameter with He's uniform initialisation (He, Zhang, Ren and Sun, Delving
// deep into rectifiers, 2015). With the variance 2/fanIn the activations have the same scale in all
// layers with ReLU. All operations are exact or correctly rounded, so every processor computes the
// same weights.
func (r *random) weights(name string, fanIn int, shape ...int) trainer.Param {
	size := 1
	for _, side := range shape {
		size *= side
	}
	data, limit := exact.Aligned(size), math.Sqrt(6/float64(fanIn))
	for i := range data {
		data[i] = float32(limit * r.symmetric())
	}
	return trainer.Param{Name: name, Shape: shape, Data: data}
}

// zeros returns a parameter of n zeros.
func zeros(name string, n int) trainer.Param {
	return trainer.Param{Name: name, Shape: []int{n}, Data: exact.Aligned(n)}
}
