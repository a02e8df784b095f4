//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Wider registers are no faster here: what counts is that whole cache lines are
// written. Both ends are copied by unaligned stores, as in simd_amd64.h.

// func copyStream(v *operands)
TEXT ·copyStream(SB), NOSPLIT, $0-8
	MOVQ v+0(FP), BX
	MOVQ operands_dst(BX), DI
	MOVQ operands_a(BX), SI
	MOVQ operands_bytes(BX), CX
	LEAQ -32(CX), R8
	LEAQ -128(CX), R9
	VMOVUPS (SI), Y10
	VMOVUPS (SI)(R8*1), Y11
	MOVQ DI, AX
	NEGQ AX
	ANDQ $31, AX

four:
	CMPQ AX, R9
	JGT  one
	VMOVUPS 0(SI)(AX*1), Y0
	VMOVUPS 32(SI)(AX*1), Y1
	VMOVUPS 64(SI)(AX*1), Y2
	VMOVUPS 96(SI)(AX*1), Y3
	VMOVNTPS Y0, 0(DI)(AX*1)
	VMOVNTPS Y1, 32(DI)(AX*1)
	VMOVNTPS Y2, 64(DI)(AX*1)
	VMOVNTPS Y3, 96(DI)(AX*1)
	ADDQ $128, AX
	JMP  four

one:
	CMPQ AX, R8
	JGE  ends
	VMOVUPS (SI)(AX*1), Y0
	VMOVUPS Y0, (DI)(AX*1)
	ADDQ $32, AX
	JMP  one

ends:
	SFENCE
	VMOVUPS Y10, (DI)
	VMOVUPS Y11, (DI)(R8*1)
	VZEROUPPER
	RET
