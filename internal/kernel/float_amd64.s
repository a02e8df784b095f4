//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "simd_amd64.h"
#include "ops_amd64.h"
#include "half_amd64.h"

// func addF32(v *operands)
TEXT ·addF32(SB), NOSPLIT, $0-8
	FOLD(NONE, ADDPS, ADDPS)

// func addF64(v *operands)
TEXT ·addF64(SB), NOSPLIT, $0-8
	FOLD(NONE, ADDPD, ADDPD)

// func mulF32(v *operands)
TEXT ·mulF32(SB), NOSPLIT, $0-8
	FOLD(NONE, MULPS, MULPS)

// func mulF64(v *operands)
TEXT ·mulF64(SB), NOSPLIT, $0-8
	FOLD(NONE, MULPD, MULPD)

// func minF32(v *operands)
TEXT ·minF32(SB), NOSPLIT, $0-8
	FOLD(NONE, MINPS, MINPS)

// func minF64(v *operands)
TEXT ·minF64(SB), NOSPLIT, $0-8
	FOLD(NONE, MINPD, MINPD)

// func maxF32(v *operands)
TEXT ·maxF32(SB), NOSPLIT, $0-8
	FOLD(SIGN32, MAXPSZ, MAXPSY)

// func maxF64(v *operands)
TEXT ·maxF64(SB), NOSPLIT, $0-8
	FOLD(SIGN64, MAXPDZ, MAXPDY)

// func divF32(v *operands)
TEXT ·divF32(SB), NOSPLIT, $0-8
	FOLD(BY32, DIVPSZ, DIVPSY)

// func divF64(v *operands)
TEXT ·divF64(SB), NOSPLIT, $0-8
	FOLD(BY64, DIVPDZ, DIVPDY)

#define FOLDF16(CONSTS, OPZ, OPY) \
	OPERANDS(32); \
	FOLDZ(CONSTS, LOADF16, OPZ, STOREF16, 32); \
narrow: \
	FOLDY(CONSTS, LOADF16, OPY, STOREF16, 16)

// func addF16(v *operands)
TEXT ·addF16(SB), NOSPLIT, $0-8
	FOLDF16(NONE, ADDPS, ADDPS)

// func mulF16(v *operands)
TEXT ·mulF16(SB), NOSPLIT, $0-8
	FOLDF16(NONE, MULPS, MULPS)

// func minF16(v *operands)
TEXT ·minF16(SB), NOSPLIT, $0-8
	FOLDF16(NONE, MINPS, MINPS)

// func maxF16(v *operands)
TEXT ·maxF16(SB), NOSPLIT, $0-8
	FOLDF16(SIGN32, MAXPSZ, MAXPSY)

// func divF16(v *operands)
TEXT ·divF16(SB), NOSPLIT, $0-8
	FOLDF16(BY32, DIVPSZ, DIVPSY)

#define FOLDBF16(CONSTS, OPZ, OPY) \
	OPERANDS(32); \
	FOLDZ(CONSTS, LOADBF16, OPZ, STOREBF16Z, 32); \
narrow: \
	FOLDY(CONSTS, LOADBF16, OPY, STOREBF16Y, 16)

// func addBF16(v *operands)
TEXT ·addBF16(SB), NOSPLIT, $0-8
	FOLDBF16(ROUNDING, ADDPS, ADDPS)

// func mulBF16(v *operands)
TEXT ·mulBF16(SB), NOSPLIT, $0-8
	FOLDBF16(ROUNDING, MULPS, MULPS)

// func minBF16(v *operands)
TEXT ·minBF16(SB), NOSPLIT, $0-8
	FOLDBF16(ROUNDING, MINPS, MINPS)

// func maxBF16(v *operands)
TEXT ·maxBF16(SB), NOSPLIT, $0-8
	FOLDBF16(BRAIN, MAXPSZ, MAXPSY)

// func divBF16(v *operands)
TEXT ·divBF16(SB), NOSPLIT, $0-8
	FOLDBF16(BRAINBY, DIVPSZ, DIVPSY)
