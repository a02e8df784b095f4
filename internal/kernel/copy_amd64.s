//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "sum_amd64.h"

// The copy uses AVX2 registers at every level: wider ones are no faster, as the speed comes from
// writing whole cache lines. Both ends are copied by unaligned stores, as in simd_amd64.h.

// FETCH prefetches two cache lines at offset AX of the memory that is read next, if it is that
// long.
#define FETCH(from, bytes, done) \
	CMPQ AX, bytes; \
	JGE done; \
	PREFETCHT1 (from)(AX*1); \
	PREFETCHT1 64(from)(AX*1); \
done:

// func copyLines(v *copying)
TEXT ·copyLines(SB), NOSPLIT, $0-8
	MOVQ v+0(FP), BX
	MOVQ copying_dst(BX), DI
	MOVQ copying_src(BX), SI
	MOVQ copying_bytes(BX), CX
	MOVQ copying_ahead(BX), R11
	MOVQ copying_after(BX), R12
	MOVQ copying_more(BX), R13
	MOVBQZX copying_claim(BX), DX
	LEAQ -32(CX), R8
	LEAQ -128(CX), R9
	MOVQ copying_next(BX), CX
	MOVBQZX copying_nonTemporal(BX), BX
	VMOVUPS (SI), Y10
	VMOVUPS (SI)(R8*1), Y11
	MOVQ DI, AX
	NEGQ AX
	ANDQ $31, AX

four:
	CMPQ AX, R9
	JGT  one
	TESTQ DX, DX
	JEQ  claimed
	LEAQ (SI)(AX*1), R10
	CLAIM(1024)
	CLAIM(1024+64)
claimed:
	FETCH(CX, R11, fetched)
	FETCH(R12, R13, fetchedMore)
	VMOVUPS 0(SI)(AX*1), Y0
	VMOVUPS 32(SI)(AX*1), Y1
	VMOVUPS 64(SI)(AX*1), Y2
	VMOVUPS 96(SI)(AX*1), Y3
	TESTQ BX, BX
	JNE  stream
	VMOVUPS Y0, 0(DI)(AX*1)
	VMOVUPS Y1, 32(DI)(AX*1)
	VMOVUPS Y2, 64(DI)(AX*1)
	VMOVUPS Y3, 96(DI)(AX*1)
	ADDQ $128, AX
	JMP  four
stream:
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
