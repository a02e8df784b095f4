package ring

import "github.com/elrun/elrun/dtype"

// ToFloat16 rounds f to the nearest float16, ties to even. Absolute values of 65520 or more become
// infinite; NaN stays NaN. The method Float32 is its inverse.
func ToFloat16(f float32) Float16 { return dtype.ToFloat16(f) }

// ToBFloat16 rounds f to the nearest bfloat16, ties to even; NaN stays NaN. The method Float32 is
// its inverse.
func ToBFloat16(f float32) BFloat16 { return dtype.ToBFloat16(f) }
