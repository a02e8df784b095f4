//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Both kernels use AVX2 registers at every level, as memory bounds their speed. x-x is 0 for a finite
// x and NaN otherwise, so the bits of all differences together are 0 if all x are finite.

// CHECK adds the bits of x-x to all.
#define CHECK(x, all, t) \
	VSUBPS x, x, t; \
	VORPS t, all, all

// func finiteF32(v *scaling)
TEXT ·finiteF32(SB), NOSPLIT, $0-8
	MOVQ v+0(FP), BX
	MOVQ scaling_v(BX), DI
	MOVQ scaling_bytes(BX), CX
	XORQ AX, AX
	VXORPS Y12, Y12, Y12
	VXORPS Y13, Y13, Y13
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15
four:
	VMOVUPS 0(DI)(AX*1), Y0
	VMOVUPS 32(DI)(AX*1), Y1
	VMOVUPS 64(DI)(AX*1), Y2
	VMOVUPS 96(DI)(AX*1), Y3
	CHECK(Y0, Y12, Y4)
	CHECK(Y1, Y13, Y5)
	CHECK(Y2, Y14, Y6)
	CHECK(Y3, Y15, Y7)
	ADDQ $128, AX
	CMPQ AX, CX
	JLT four
	VORPS Y12, Y13, Y13
	VORPS Y14, Y15, Y15
	VORPS Y13, Y15, Y15
	VPTEST Y15, Y15
	SETEQ scaling_finite(BX)
	VZEROUPPER
	RET

// func scaleF32(v *scaling)
TEXT ·scaleF32(SB), NOSPLIT, $0-8
	MOVQ v+0(FP), BX
	MOVQ scaling_v(BX), DI
	MOVQ scaling_bytes(BX), CX
	VBROADCASTSS scaling_factor(BX), Y11
	XORQ AX, AX
	VXORPS Y12, Y12, Y12
	VXORPS Y13, Y13, Y13
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15
four:
	VMULPS 0(DI)(AX*1), Y11, Y0
	VMULPS 32(DI)(AX*1), Y11, Y1
	VMULPS 64(DI)(AX*1), Y11, Y2
	VMULPS 96(DI)(AX*1), Y11, Y3
	VMOVUPS Y0, 0(DI)(AX*1)
	VMOVUPS Y1, 32(DI)(AX*1)
	VMOVUPS Y2, 64(DI)(AX*1)
	VMOVUPS Y3, 96(DI)(AX*1)
	CHECK(Y0, Y12, Y4)
	CHECK(Y1, Y13, Y5)
	CHECK(Y2, Y14, Y6)
	CHECK(Y3, Y15, Y7)
	ADDQ $128, AX
	CMPQ AX, CX
	JLT four
	VORPS Y12, Y13, Y13
	VORPS Y14, Y15, Y15
	VORPS Y13, Y15, Y15
	VPTEST Y15, Y15
	SETEQ scaling_finite(BX)
	VZEROUPPER
	RET
