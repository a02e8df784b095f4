// The common parts of the kernels. A kernel is one of the bodies below, with four macros as
// parameters:
//
//	CONSTS(A, B, C, D, X)   sets constants in registers; X is scratch
//	LOAD(m, r)              reads a vector
//	OP(b, a, t, u)          a = a op b; t and u are scratch
//	STORE(r, m, t, u, x)    rounds and writes a vector; r, t, u are scratch,
//	                        x is the lower half of t
//
// Registers of the bodies, for Y (AVX2) and Z (AVX-512) alike:
//
//	 0-7   vectors in computation          DI dst       AX offset from dst in bytes
//	 8, 9  operand b, scratch              SI a         CX length in bytes
//	 10    result at the start             DX b         R8 offset of the last vector
//	 11    result at the end
//	 12-15 constants

#define NONE(A, B, C, D, X)

#define LOADV(m, r) VMOVUPS m, r
#define STOREV(r, m, t, u, x) VMOVUPS r, m
#define STREAMV(r, m, t, u, x) VMOVNTPS r, m

// The length is seldom a multiple of the register's length, and the destination is seldom aligned.
// So the results of the first and the last register are computed before anything is written, and
// written after all others. The aligned registers between them may overlap both; then the same
// values are written twice. This is also right if dst is a or b: no input is read after it was
// overwritten, except inputs of the first and the last register, whose results exist by then.

// STEP computes the result at offset i from AX.
#define STEP(LOAD, OP, STORE, i, A, B, T, U, X) \
	LOAD((i)(SI)(AX*1), A); \
	LOAD((i)(DX)(AX*1), B); \
	OP(B, A, T, U); \
	STORE(A, (i)(DI)(AX*1), B, T, X)

// ENDS computes the results of the first and the last register, of w bytes in memory, and sets AX
// to the first aligned offset.
#define ENDS(LOAD, OP, w, A, B, T, U, V) \
	LEAQ -(w)(CX), R8; \
	LOAD((SI), A); \
	LOAD((DX), B); \
	OP(B, A, T, U); \
	LOAD((SI)(R8*1), V); \
	LOAD((DX)(R8*1), B); \
	OP(B, V, T, U); \
	MOVQ DI, AX; \
	NEGQ AX; \
	ANDQ $((w)-1), AX

// FOLDY is the body of a reduction with AVX2, for registers of w bytes in memory. CX must be at
// least w.
#define FOLDY(CONSTS, LOAD, OP, STORE, w) \
	CONSTS(Y12, Y13, Y14, Y15, X8); \
	ENDS(LOAD, OP, w, Y10, Y8, Y9, Y1, Y11); \
	LEAQ -(3*w)(R8), R9; \
four: \
	CMPQ AX, R9; \
	JGT one; \
	STEP(LOAD, OP, STORE, 0*w, Y0, Y8, Y9, Y1, X8); \
	STEP(LOAD, OP, STORE, 1*w, Y2, Y8, Y9, Y1, X8); \
	STEP(LOAD, OP, STORE, 2*w, Y3, Y8, Y9, Y1, X8); \
	STEP(LOAD, OP, STORE, 3*w, Y4, Y8, Y9, Y1, X8); \
	ADDQ $(4*w), AX; \
	JMP four; \
one: \
	CMPQ AX, R8; \
	JGE ends; \
	STEP(LOAD, OP, STORE, 0*w, Y0, Y8, Y9, Y1, X8); \
	ADDQ $(w), AX; \
	JMP one; \
ends: \
	STORE(Y10, (DI), Y8, Y9, X8); \
	STORE(Y11, (DI)(R8*1), Y8, Y9, X8); \
	VZEROUPPER; \
	RET

// FOLDZ is FOLDY with AVX-512.
#define FOLDZ(CONSTS, LOAD, OP, STORE, w) \
	CONSTS(Z12, Z13, Z14, Z15, X8); \
	ENDS(LOAD, OP, w, Z10, Z8, Z9, Z1, Z11); \
	LEAQ -(3*w)(R8), R9; \
wideFour: \
	CMPQ AX, R9; \
	JGT wideOne; \
	STEP(LOAD, OP, STORE, 0*w, Z0, Z8, Z9, Z1, Y8); \
	STEP(LOAD, OP, STORE, 1*w, Z2, Z8, Z9, Z1, Y8); \
	STEP(LOAD, OP, STORE, 2*w, Z3, Z8, Z9, Z1, Y8); \
	STEP(LOAD, OP, STORE, 3*w, Z4, Z8, Z9, Z1, Y8); \
	ADDQ $(4*w), AX; \
	JMP wideFour; \
wideOne: \
	CMPQ AX, R8; \
	JGE wideEnds; \
	STEP(LOAD, OP, STORE, 0*w, Z0, Z8, Z9, Z1, Y8); \
	ADDQ $(w), AX; \
	JMP wideOne; \
wideEnds: \
	STORE(Z10, (DI), Z8, Z9, Y8); \
	STORE(Z11, (DI)(R8*1), Z8, Z9, Y8); \
	VZEROUPPER; \
	RET

// OPERANDS loads the argument, *operands, into the registers. It jumps to narrow without AVX-512,
// or if the vectors are shorter than one register of w bytes.
#define OPERANDS(w) \
	MOVQ v+0(FP), BX; \
	MOVQ operands_dst(BX), DI; \
	MOVQ operands_a(BX), SI; \
	MOVQ operands_b(BX), DX; \
	MOVQ operands_bytes(BX), CX; \
	CMPB operands_wide(BX), $0; \
	JEQ narrow; \
	CMPQ CX, $(w); \
	JLT narrow

// FOLD is a whole kernel for types whose arithmetic is on the elements as they are in memory. OPZ
// and OPY are the same operation.
#define FOLD(CONSTS, OPZ, OPY) \
	OPERANDS(64); \
	FOLDZ(CONSTS, LOADV, OPZ, STOREV, 64); \
narrow: \
	FOLDY(CONSTS, LOADV, OPY, STOREV, 32)
