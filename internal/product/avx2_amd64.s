//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// A tile has 4 rows in R8-R11 and 2 lines or columns in R12 and R13. Its sums are in Y0-Y7, by row
// and line. BX is the argument; SI runs over the terms up to DI.

// ADDRESS sets R to the address BASE + 4 * OFFSET(BX).
#define ADDRESS(BASE, OFFSET, R) \
	MOVQ OFFSET(BX), R; \
	LEAQ (BASE)(R*4), R

// ROWS sets R8-R11 to the rows of a.
#define ROWS \
	MOVQ (tile_Operands+Operands_A)(BX), AX; \
	ADDRESS(AX, (tile_rows+0*Row__size+Row_A), R8); \
	ADDRESS(AX, (tile_rows+1*Row__size+Row_A), R9); \
	ADDRESS(AX, (tile_rows+2*Row__size+Row_A), R10); \
	ADDRESS(AX, (tile_rows+3*Row__size+Row_A), R11)

// TERMS sets SI and DI to the first term and to the end of the terms.
#define TERMS \
	MOVQ tile_terms(BX), SI; \
	MOVQ tile_terms+8(BX), DI; \
	SHLQ $4, DI; \
	ADDQ SI, DI

// MULTIPLY adds the products of a factor of the row R, which LOAD loads, to the sums S and T.
#define MULTIPLY(LOAD, R, S, T) \
	LOAD   (R)(AX*4), Y10; \
	VMULPS Y8, Y10, Y11; \
	VADDPS Y11, S, S; \
	VMULPS Y9, Y10, Y12; \
	VADDPS Y12, T, T

// TERM adds the term at SI to all sums, and steps to the next one. The flags tell whether it was the
// last.
#define TERM(LOAD) \
	MOVQ    Term_A(SI), AX; \
	MOVQ    Term_B(SI), DX; \
	VMOVUPS (R12)(DX*4), Y8; \
	VMOVUPS (R13)(DX*4), Y9; \
	MULTIPLY(LOAD, R8, Y0, Y1); \
	MULTIPLY(LOAD, R9, Y2, Y3); \
	MULTIPLY(LOAD, R10, Y4, Y5); \
	MULTIPLY(LOAD, R11, Y6, Y7); \
	ADDQ    $Term__size, SI; \
	CMPQ    SI, DI

// MOVEROW moves the sums S and T of row I between registers and c, as MOVE says: LOADROW or STOREROW.
// The lines are at the offsets AX and DX.
#define MOVEROW(MOVE, I, S, T) \
	MOVQ (tile_Operands+Operands_C)(BX), R12; \
	MOVQ (tile_rows+I*Row__size+Row_C)(BX), R13; \
	LEAQ (R12)(R13*4), R12; \
	MOVE(S, T)

#define LOADROW(S, T) \
	VMOVUPS (R12)(AX*4), S; \
	VMOVUPS (R12)(DX*4), T

#define STOREROW(S, T) \
	VMOVUPS S, (R12)(AX*4); \
	VMOVUPS T, (R12)(DX*4)

// MOVETILE moves all sums of the pair of lines at CX.
#define MOVETILE(MOVE) \
	MOVQ Line_C(CX), AX; \
	MOVQ (Line__size+Line_C)(CX), DX; \
	MOVEROW(MOVE, 0, Y0, Y1); \
	MOVEROW(MOVE, 1, Y2, Y3); \
	MOVEROW(MOVE, 2, Y4, Y5); \
	MOVEROW(MOVE, 3, Y6, Y7)

// func outerAVX2(t *tile)
TEXT ·outerAVX2(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), BX
	ROWS
	MOVQ tile_lines(BX), CX // runs over the lines, up to R15
	MOVQ tile_lines+8(BX), R15
	SHLQ $4, R15
	ADDQ CX, R15

lines:
	MOVETILE(LOADROW)
	MOVQ (tile_Operands+Operands_B)(BX), AX
	MOVQ Line_B(CX), R12
	LEAQ (AX)(R12*4), R12
	MOVQ (Line__size+Line_B)(CX), R13
	LEAQ (AX)(R13*4), R13
	TERMS

terms:
	TERM(VBROADCASTSS)
	JNE terms
	MOVETILE(STOREROW)
	ADDQ $(2*Line__size), CX
	CMPQ CX, R15
	JNE  lines
	VZEROUPPER
	RET

// func dotsAVX2(t *tile)
TEXT ·dotsAVX2(SB), NOSPLIT, $0-8
	MOVQ   t+0(FP), BX
	ROWS
	MOVQ   (tile_Operands+Operands_B)(BX), AX
	ADDRESS(AX, (tile_columns+Column_B), R12)
	ADDRESS(AX, (tile_columns+Column__size+Column_B), R13)
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	TERMS

terms:
	TERM(VMOVUPS)
	JNE     terms
	VMOVUPS Y0, (tile_sums+0*32)(BX)
	VMOVUPS Y1, (tile_sums+1*32)(BX)
	VMOVUPS Y2, (tile_sums+2*32)(BX)
	VMOVUPS Y3, (tile_sums+3*32)(BX)
	VMOVUPS Y4, (tile_sums+4*32)(BX)
	VMOVUPS Y5, (tile_sums+5*32)(BX)
	VMOVUPS Y6, (tile_sums+6*32)(BX)
	VMOVUPS Y7, (tile_sums+7*32)(BX)
	VZEROUPPER
	RET
