//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "simd_amd64.h"
#include "ops_amd64.h"

// The low bits of sums and products do not depend on the sign, so signed and unsigned types share
// them.

// func addI8(v *operands)
TEXT ·addI8(SB), NOSPLIT, $0-8
	FOLD(NONE, ADDB, ADDB)

// func addI32(v *operands)
TEXT ·addI32(SB), NOSPLIT, $0-8
	FOLD(NONE, ADDL, ADDL)

// func addI64(v *operands)
TEXT ·addI64(SB), NOSPLIT, $0-8
	FOLD(NONE, ADDQ_, ADDQ_)

// func mulI8(v *operands)
TEXT ·mulI8(SB), NOSPLIT, $0-8
	FOLD(NONE, MULB, MULB)

// func mulI32(v *operands)
TEXT ·mulI32(SB), NOSPLIT, $0-8
	FOLD(NONE, MULL, MULL)

// func mulI64(v *operands)
TEXT ·mulI64(SB), NOSPLIT, $0-8
	FOLD(NONE, MULQZ, MULQY)

// The lesser and the greater element.

// func minI8(v *operands)
TEXT ·minI8(SB), NOSPLIT, $0-8
	FOLD(NONE, MINSB, MINSB)

// func minU8(v *operands)
TEXT ·minU8(SB), NOSPLIT, $0-8
	FOLD(NONE, MINUB, MINUB)

// func minI32(v *operands)
TEXT ·minI32(SB), NOSPLIT, $0-8
	FOLD(NONE, MINSL, MINSL)

// func minU32(v *operands)
TEXT ·minU32(SB), NOSPLIT, $0-8
	FOLD(NONE, MINUL, MINUL)

// func minI64(v *operands)
TEXT ·minI64(SB), NOSPLIT, $0-8
	FOLD(NONE, MINSQZ, MINSQY)

// func minU64(v *operands)
TEXT ·minU64(SB), NOSPLIT, $0-8
	FOLD(SIGN64, MINUQZ, MINUQY)

// func maxI8(v *operands)
TEXT ·maxI8(SB), NOSPLIT, $0-8
	FOLD(NONE, MAXSB, MAXSB)

// func maxU8(v *operands)
TEXT ·maxU8(SB), NOSPLIT, $0-8
	FOLD(NONE, MAXUB, MAXUB)

// func maxI32(v *operands)
TEXT ·maxI32(SB), NOSPLIT, $0-8
	FOLD(NONE, MAXSL, MAXSL)

// func maxU32(v *operands)
TEXT ·maxU32(SB), NOSPLIT, $0-8
	FOLD(NONE, MAXUL, MAXUL)

// func maxI64(v *operands)
TEXT ·maxI64(SB), NOSPLIT, $0-8
	FOLD(NONE, MAXSQZ, MAXSQY)

// func maxU64(v *operands)
TEXT ·maxU64(SB), NOSPLIT, $0-8
	FOLD(SIGN64, MAXUQZ, MAXUQY)

// Bitwise operations do not depend on the element type.

// func andBits(v *operands)
TEXT ·andBits(SB), NOSPLIT, $0-8
	FOLD(NONE, ANDV, ANDV)

// func orBits(v *operands)
TEXT ·orBits(SB), NOSPLIT, $0-8
	FOLD(NONE, ORV, ORV)

// func xorBits(v *operands)
TEXT ·xorBits(SB), NOSPLIT, $0-8
	FOLD(NONE, XORV, XORV)
