// Sums of several vectors in one pass, written to one or several destinations. The registers are
// those of simd_amd64.h, except
//
//	DI   first slice header of destinations    R13  number of destinations
//	SI   first slice header of added vectors   DX   number of added vectors after it
//	R10  address in the present slice          R11  header of the present slice
//	R12  number of remaining slices            BX   number of the last destinations for
//	                                                non-temporal stores
//
// A slice header of Go is three words, the first of which is the pointer.

#define SOURCES(w) \
	MOVQ v+0(FP), BX; \
	MOVQ sources_to(BX), DI; \
	MOVQ sources_copies(BX), R13; \
	MOVQ sources_from(BX), SI; \
	MOVQ sources_count(BX), DX; \
	DECQ DX; \
	MOVQ sources_bytes(BX), CX; \
	MOVBQZX sources_wide(BX), AX; \
	MOVQ sources_nonTemporal(BX), BX; \
	TESTQ AX, AX; \
	JEQ narrow; \
	CMPQ CX, $(w); \
	JLT narrow

// SUMENDS is ENDS for any number of slices.
#define SUMENDS(LOAD, OP, w, A, B, V, next) \
	LEAQ -(w)(CX), R8; \
	MOVQ (SI), R10; \
	LOAD((R10), A); \
	LOAD((R10)(R8*1), V); \
	LEAQ 24(SI), R11; \
	MOVQ DX, R12; \
next: \
	MOVQ (R11), R10; \
	LOAD((R10), B); \
	OP(B, A, B, B); \
	LOAD((R10)(R8*1), B); \
	OP(B, V, B, B); \
	ADDQ $24, R11; \
	DECQ R12; \
	JNZ next; \
	MOVQ (DI), AX; \
	NEGQ AX; \
	ANDQ $((w)-1), AX

// FIRST sets R10 to offset AX of the first slice, NEXT to offset AX of the next one.
#define FIRST \
	MOVQ (SI), R10; \
	ADDQ AX, R10; \
	LEAQ 24(SI), R11; \
	MOVQ DX, R12

#define NEXT \
	MOVQ (R11), R10; \
	ADDQ AX, R10; \
	ADDQ $24, R11

// EACH begins a loop over the destinations, TO sets R10 to offset AX of the next one, and LAST ends
// the loop.
#define EACH \
	MOVQ DI, R11; \
	MOVQ R13, R12

#define TO \
	MOVQ (R11), R10; \
	ADDQ AX, R10; \
	ADDQ $24, R11

#define LAST(to) \
	DECQ R12; \
	JNZ to

#define MORE(LOAD, OP, i, A, B) \
	LOAD((i)(R10), B); \
	OP(B, A, B, B)

// AHEAD prefetches the inputs of 4 KiB later if all destinations are written by non-temporal
// stores: with many streams to read and to write, the processor's own prefetcher does not run as
// far ahead. Other destinations may be inputs too, and CLAIMS prefetches these.
#define AHEAD(w, near) \
	CMPQ R13, BX; \
	JNE near; \
	PREFETCHT0 (4096+0*w)(R10); \
	PREFETCHT0 (4096+1*w)(R10); \
	PREFETCHT0 (4096+2*w)(R10); \
	PREFETCHT0 (4096+3*w)(R10); \
	PREFETCHT0 (4096+4*w)(R10); \
	PREFETCHT0 (4096+5*w)(R10); \
	PREFETCHT0 (4096+6*w)(R10); \
	PREFETCHT0 (4096+7*w)(R10); \
near:

// CLAIM takes ownership of the cache line at a distance from R10, to write it: PREFETCHW, which the
// Go assembler does not know.
#define CLAIM(distance) \
	BYTE $0x41; \
	BYTE $0x0f; \
	BYTE $0x0d; \
	BYTE $0x8a; \
	LONG $(distance)

// CLAIMS takes ownership of the destinations of 1 KiB later. The processor's own prefetcher runs
// ahead only of reads. A store to a line that another core owns would wait for a cache-line
// transfer.
#define CLAIMS(w) \
	CLAIM(1024+0*w); \
	CLAIM(1024+1*w); \
	CLAIM(1024+2*w); \
	CLAIM(1024+3*w); \
	CLAIM(1024+4*w); \
	CLAIM(1024+5*w); \
	CLAIM(1024+6*w); \
	CLAIM(1024+7*w)

// SUMY is the body of a sum with AVX2, for registers of w bytes in memory, eight of each slice at a
// time.
#define SUMY(CONSTS, LOAD, OP, STORE, STREAM, w) \
	CONSTS(Y12, Y13, Y14, Y15, X8); \
	SUMENDS(LOAD, OP, w, Y10, Y8, Y11, nextEnd); \
	LEAQ -(7*w)(R8), R9; \
eight: \
	CMPQ AX, R9; \
	JGT one; \
	FIRST; \
	AHEAD(w, near) \
	LOAD((0*w)(R10), Y0); \
	LOAD((1*w)(R10), Y1); \
	LOAD((2*w)(R10), Y2); \
	LOAD((3*w)(R10), Y3); \
	LOAD((4*w)(R10), Y4); \
	LOAD((5*w)(R10), Y5); \
	LOAD((6*w)(R10), Y6); \
	LOAD((7*w)(R10), Y7); \
nextEight: \
	NEXT; \
	AHEAD(w, nextNear) \
	MORE(LOAD, OP, 0*w, Y0, Y8); \
	MORE(LOAD, OP, 1*w, Y1, Y9); \
	MORE(LOAD, OP, 2*w, Y2, Y8); \
	MORE(LOAD, OP, 3*w, Y3, Y9); \
	MORE(LOAD, OP, 4*w, Y4, Y8); \
	MORE(LOAD, OP, 5*w, Y5, Y9); \
	MORE(LOAD, OP, 6*w, Y6, Y8); \
	MORE(LOAD, OP, 7*w, Y7, Y9); \
	DECQ R12; \
	JNZ nextEight; \
	EACH; \
toEight: \
	TO; \
	CMPQ R12, BX; \
	JLE stream; \
	CLAIMS(w); \
	STORE(Y0, (0*w)(R10), Y8, Y9, X8); \
	STORE(Y1, (1*w)(R10), Y8, Y9, X8); \
	STORE(Y2, (2*w)(R10), Y8, Y9, X8); \
	STORE(Y3, (3*w)(R10), Y8, Y9, X8); \
	STORE(Y4, (4*w)(R10), Y8, Y9, X8); \
	STORE(Y5, (5*w)(R10), Y8, Y9, X8); \
	STORE(Y6, (6*w)(R10), Y8, Y9, X8); \
	STORE(Y7, (7*w)(R10), Y8, Y9, X8); \
	LAST(toEight); \
	ADDQ $(8*w), AX; \
	JMP eight; \
stream: \
	STREAM(Y0, (0*w)(R10), Y8, Y9, X8); \
	STREAM(Y1, (1*w)(R10), Y8, Y9, X8); \
	STREAM(Y2, (2*w)(R10), Y8, Y9, X8); \
	STREAM(Y3, (3*w)(R10), Y8, Y9, X8); \
	STREAM(Y4, (4*w)(R10), Y8, Y9, X8); \
	STREAM(Y5, (5*w)(R10), Y8, Y9, X8); \
	STREAM(Y6, (6*w)(R10), Y8, Y9, X8); \
	STREAM(Y7, (7*w)(R10), Y8, Y9, X8); \
	LAST(toEight); \
	ADDQ $(8*w), AX; \
	JMP eight; \
one: \
	CMPQ AX, R8; \
	JGE ends; \
	FIRST; \
	LOAD((R10), Y0); \
nextOne: \
	NEXT; \
	MORE(LOAD, OP, 0, Y0, Y8); \
	DECQ R12; \
	JNZ nextOne; \
	EACH; \
toOne: \
	TO; \
	STORE(Y0, (R10), Y8, Y9, X8); \
	LAST(toOne); \
	ADDQ $(w), AX; \
	JMP one; \
ends: \
	SFENCE; \
	XORL AX, AX; \
	EACH; \
toEnds: \
	TO; \
	STORE(Y10, (R10), Y8, Y9, X8); \
	STORE(Y11, (R10)(R8*1), Y8, Y9, X8); \
	LAST(toEnds); \
	VZEROUPPER; \
	RET

// SUMZ is SUMY with AVX-512.
#define SUMZ(CONSTS, LOAD, OP, STORE, STREAM, w) \
	CONSTS(Z12, Z13, Z14, Z15, X8); \
	SUMENDS(LOAD, OP, w, Z10, Z8, Z11, wideNextEnd); \
	LEAQ -(7*w)(R8), R9; \
wideEight: \
	CMPQ AX, R9; \
	JGT wideOne; \
	FIRST; \
	AHEAD(w, wideNear) \
	LOAD((0*w)(R10), Z0); \
	LOAD((1*w)(R10), Z1); \
	LOAD((2*w)(R10), Z2); \
	LOAD((3*w)(R10), Z3); \
	LOAD((4*w)(R10), Z4); \
	LOAD((5*w)(R10), Z5); \
	LOAD((6*w)(R10), Z6); \
	LOAD((7*w)(R10), Z7); \
wideNextEight: \
	NEXT; \
	AHEAD(w, wideNextNear) \
	MORE(LOAD, OP, 0*w, Z0, Z8); \
	MORE(LOAD, OP, 1*w, Z1, Z9); \
	MORE(LOAD, OP, 2*w, Z2, Z8); \
	MORE(LOAD, OP, 3*w, Z3, Z9); \
	MORE(LOAD, OP, 4*w, Z4, Z8); \
	MORE(LOAD, OP, 5*w, Z5, Z9); \
	MORE(LOAD, OP, 6*w, Z6, Z8); \
	MORE(LOAD, OP, 7*w, Z7, Z9); \
	DECQ R12; \
	JNZ wideNextEight; \
	EACH; \
wideToEight: \
	TO; \
	CMPQ R12, BX; \
	JLE wideStream; \
	CLAIMS(w); \
	STORE(Z0, (0*w)(R10), Z8, Z9, Y8); \
	STORE(Z1, (1*w)(R10), Z8, Z9, Y8); \
	STORE(Z2, (2*w)(R10), Z8, Z9, Y8); \
	STORE(Z3, (3*w)(R10), Z8, Z9, Y8); \
	STORE(Z4, (4*w)(R10), Z8, Z9, Y8); \
	STORE(Z5, (5*w)(R10), Z8, Z9, Y8); \
	STORE(Z6, (6*w)(R10), Z8, Z9, Y8); \
	STORE(Z7, (7*w)(R10), Z8, Z9, Y8); \
	LAST(wideToEight); \
	ADDQ $(8*w), AX; \
	JMP wideEight; \
wideStream: \
	STREAM(Z0, (0*w)(R10), Z8, Z9, Y8); \
	STREAM(Z1, (1*w)(R10), Z8, Z9, Y8); \
	STREAM(Z2, (2*w)(R10), Z8, Z9, Y8); \
	STREAM(Z3, (3*w)(R10), Z8, Z9, Y8); \
	STREAM(Z4, (4*w)(R10), Z8, Z9, Y8); \
	STREAM(Z5, (5*w)(R10), Z8, Z9, Y8); \
	STREAM(Z6, (6*w)(R10), Z8, Z9, Y8); \
	STREAM(Z7, (7*w)(R10), Z8, Z9, Y8); \
	LAST(wideToEight); \
	ADDQ $(8*w), AX; \
	JMP wideEight; \
wideOne: \
	CMPQ AX, R8; \
	JGE wideEnds; \
	FIRST; \
	LOAD((R10), Z0); \
wideNextOne: \
	NEXT; \
	MORE(LOAD, OP, 0, Z0, Z8); \
	DECQ R12; \
	JNZ wideNextOne; \
	EACH; \
wideToOne: \
	TO; \
	STORE(Z0, (R10), Z8, Z9, Y8); \
	LAST(wideToOne); \
	ADDQ $(w), AX; \
	JMP wideOne; \
wideEnds: \
	SFENCE; \
	XORL AX, AX; \
	EACH; \
wideToEnds: \
	TO; \
	STORE(Z10, (R10), Z8, Z9, Y8); \
	STORE(Z11, (R10)(R8*1), Z8, Z9, Y8); \
	LAST(wideToEnds); \
	VZEROUPPER; \
	RET
