package kernel

// level is a set of processor instructions for which there are kernels. Tests run every level that
// the processor has, and compare the results with the loops in Go.
type level int

const (
	plain  level = iota // loops in Go
	avx2                // AVX2 and F16C
	avx512              // also AVX-512 F, BW, DQ and VL
)
