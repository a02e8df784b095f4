// Loads and stores of Float16 and BFloat16. The register has float32 elements, so a vector is half
// as long in memory as in the register.

#define LOADF16(m, r) VCVTPH2PS m, r
#define STOREF16(r, m, t, u, x) VCVTPS2PH $0, r, m
#define STREAMF16(r, m, t, u, x) VCVTPS2PH $0, r, x; VMOVNTPS x, m

#define LOADBF16(m, r) \
	VPMOVZXWD m, r; \
	VPSLLD $16, r, r

// Constants: ROUNDING for the rounding, BRAIN also the sign bits for the greater element, BRAINBY
// also the divisor.
#define ROUNDING(A, B, C, D, X) \
	MOVL $0x7fff, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, A; \
	MOVL $1, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, B

#define BRAIN(A, B, C, D, X) ROUNDING(A, B, C, D, X); SIGN32(A, B, C, D, X)
#define BRAINBY(A, B, C, D, X) ROUNDING(A, B, C, D, X); BY32(A, B, C, D, X)

// Rounding to even at bit 16 adds 0x7fff and the value of bit 16, and then drops the lower 16 bits.
// A NaN stays a NaN: it comes from an operand, or from the processor for Inf - Inf and the like. In
// both cases its lower bits are 0, so the addition has no carry.

// PACKY rounds the elements of r and leaves the result in X8.
#define PACKY(r) \
	VPSRLD $16, r, Y8; \
	VPAND Y13, Y8, Y8; \
	VPADDD Y12, Y8, Y8; \
	VPADDD r, Y8, Y8; \
	VPSRLD $16, Y8, Y8; \
	VPACKUSDW Y8, Y8, Y8; \
	VPERMQ $8, Y8, Y8

#define STOREBF16Y(r, m, t, u, x) PACKY(r); VMOVUPS X8, m
#define STREAMBF16Y(r, m, t, u, x) PACKY(r); VMOVNTPS X8, m

// PACKZ is PACKY with AVX-512; it leaves the result in Y8.
#define PACKZ(r) \
	VPSRLD $16, r, Z8; \
	VPANDD Z13, Z8, Z8; \
	VPADDD Z12, Z8, Z8; \
	VPADDD r, Z8, Z8; \
	VPSRLD $16, Z8, Z8; \
	VPMOVDW Z8, Y8

#define STOREBF16Z(r, m, t, u, x) PACKZ(r); VMOVUPS Y8, m
#define STREAMBF16Z(r, m, t, u, x) PACKZ(r); VMOVNTPS Y8, m
