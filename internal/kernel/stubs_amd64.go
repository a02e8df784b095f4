//go:build !purego

package kernel

// The kernels in assembly. They set dst[i] = a[i] op b[i]; the sums set dst[i] = from[0][i] +
// from[1][i] + ..., the quotients dst[i] = a[i] / by, and the copy dst[i] = src[i]. They use
// AVX-512 if wide is set, otherwise AVX2. Kernels for both signed and unsigned integers have the
// name of the signed type. No kernel keeps a pointer.

//go:noescape
func addF32(v *operands)

//go:noescape
func addF64(v *operands)

//go:noescape
func mulF32(v *operands)

//go:noescape
func mulF64(v *operands)

//go:noescape
func minF32(v *operands)

//go:noescape
func minF64(v *operands)

//go:noescape
func maxF32(v *operands)

//go:noescape
func maxF64(v *operands)

//go:noescape
func addF16(v *operands)

//go:noescape
func mulF16(v *operands)

//go:noescape
func minF16(v *operands)

//go:noescape
func maxF16(v *operands)

//go:noescape
func addBF16(v *operands)

//go:noescape
func mulBF16(v *operands)

//go:noescape
func minBF16(v *operands)

//go:noescape
func maxBF16(v *operands)

//go:noescape
func addI8(v *operands)

//go:noescape
func addI32(v *operands)

//go:noescape
func addI64(v *operands)

//go:noescape
func mulI8(v *operands)

//go:noescape
func mulI32(v *operands)

//go:noescape
func mulI64(v *operands)

//go:noescape
func minI8(v *operands)

//go:noescape
func minU8(v *operands)

//go:noescape
func minI32(v *operands)

//go:noescape
func minU32(v *operands)

//go:noescape
func minI64(v *operands)

//go:noescape
func minU64(v *operands)

//go:noescape
func maxI8(v *operands)

//go:noescape
func maxU8(v *operands)

//go:noescape
func maxI32(v *operands)

//go:noescape
func maxU32(v *operands)

//go:noescape
func maxI64(v *operands)

//go:noescape
func maxU64(v *operands)

//go:noescape
func andBits(v *operands)

//go:noescape
func orBits(v *operands)

//go:noescape
func xorBits(v *operands)

//go:noescape
func sumF32(v *sources)

//go:noescape
func sumF64(v *sources)

//go:noescape
func sumI8(v *sources)

//go:noescape
func sumI32(v *sources)

//go:noescape
func sumI64(v *sources)

//go:noescape
func sumF16(v *sources)

//go:noescape
func sumBF16(v *sources)

//go:noescape
func copyLines(v *copying)

//go:noescape
func divF32(v *operands)

//go:noescape
func divF64(v *operands)

//go:noescape
func divF16(v *operands)

//go:noescape
func divBF16(v *operands)
