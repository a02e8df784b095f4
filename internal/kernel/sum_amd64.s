//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "simd_amd64.h"
#include "ops_amd64.h"
#include "half_amd64.h"
#include "sum_amd64.h"

#define SUM(OP) \
	SOURCES(64); \
	SUMZ(NONE, LOADV, OP, STOREV, STREAMV, 64); \
narrow: \
	SUMY(NONE, LOADV, OP, STOREV, STREAMV, 32)

// func sumF32(v *sources)
TEXT ·sumF32(SB), NOSPLIT, $0-8
	SUM(ADDPS)

// func sumF64(v *sources)
TEXT ·sumF64(SB), NOSPLIT, $0-8
	SUM(ADDPD)

// func sumI8(v *sources)
TEXT ·sumI8(SB), NOSPLIT, $0-8
	SUM(ADDB)

// func sumI32(v *sources)
TEXT ·sumI32(SB), NOSPLIT, $0-8
	SUM(ADDL)

// func sumI64(v *sources)
TEXT ·sumI64(SB), NOSPLIT, $0-8
	SUM(ADDQ_)

// func sumF16(v *sources)
TEXT ·sumF16(SB), NOSPLIT, $0-8
	SOURCES(32)
	SUMZ(NONE, LOADF16, ADDPS, STOREF16, STREAMF16, 32)
narrow:
	SUMY(NONE, LOADF16, ADDPS, STOREF16, STREAMF16, 16)

// func sumBF16(v *sources)
TEXT ·sumBF16(SB), NOSPLIT, $0-8
	SOURCES(32)
	SUMZ(ROUNDING, LOADBF16, ADDPS, STOREBF16Z, STREAMBF16Z, 32)
narrow:
	SUMY(ROUNDING, LOADBF16, ADDPS, STOREBF16Y, STREAMBF16Y, 16)
