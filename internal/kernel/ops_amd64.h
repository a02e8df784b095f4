// The operations on vectors, a = a op b, of one or a few instructions; t and u are scratch. Most of
// them are the same for Y and Z registers; otherwise the last letter of the name is Y or Z.

#define ADDPS(b, a, t, u) VADDPS b, a, a
#define ADDPD(b, a, t, u) VADDPD b, a, a
#define MULPS(b, a, t, u) VMULPS b, a, a
#define MULPD(b, a, t, u) VMULPD b, a, a

#define ADDB(b, a, t, u) VPADDB b, a, a
#define ADDL(b, a, t, u) VPADDD b, a, a
#define ADDQ_(b, a, t, u) VPADDQ b, a, a
#define MULL(b, a, t, u) VPMULLD b, a, a

#define MINSB(b, a, t, u) VPMINSB b, a, a
#define MAXSB(b, a, t, u) VPMAXSB b, a, a
#define MINUB(b, a, t, u) VPMINUB b, a, a
#define MAXUB(b, a, t, u) VPMAXUB b, a, a
#define MINSL(b, a, t, u) VPMINSD b, a, a
#define MAXSL(b, a, t, u) VPMAXSD b, a, a
#define MINUL(b, a, t, u) VPMINUD b, a, a
#define MAXUL(b, a, t, u) VPMAXUD b, a, a

#define ANDV(b, a, t, u) VANDPS b, a, a
#define ORV(b, a, t, u) VORPS b, a, a
#define XORV(b, a, t, u) VXORPS b, a, a

// VMINPS and VMINPD return their second operand if one operand is NaN or both are zeros. So MINPS
// and MINPD compute both orders and combine them by a bitwise or: a NaN stays a NaN, the sign of a
// zero is kept, and equal bits do not change.
#define MINPS(b, a, t, u) \
	VMINPS b, a, t; \
	VMINPS a, b, a; \
	VORPS t, a, a

#define MINPD(b, a, t, u) \
	VMINPD b, a, t; \
	VMINPD a, b, a; \
	VORPD t, a, a

// max(a, b) = -min(-a, -b). D has the sign bits, in Y15 or Z15, so there is a macro for each of
// them.
#define MAXWITH(MIN, D, b, a, t, u) \
	VXORPS D, a, a; \
	VXORPS D, b, b; \
	MIN(b, a, t, u); \
	VXORPS D, a, a

#define MAXPSY(b, a, t, u) MAXWITH(MINPS, Y15, b, a, t, u)
#define MAXPSZ(b, a, t, u) MAXWITH(MINPS, Z15, b, a, t, u)
#define MAXPDY(b, a, t, u) MAXWITH(MINPD, Y15, b, a, t, u)
#define MAXPDZ(b, a, t, u) MAXWITH(MINPD, Z15, b, a, t, u)

#define SIGN32(A, B, C, D, X) \
	MOVL $0x80000000, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, D

#define SIGN64(A, B, C, D, X) \
	MOVQ $0x8000000000000000, AX; \
	VMOVQ AX, X; \
	VPBROADCASTQ X, D

// Quotients by a single number, which is broadcast to D; b is not used.
#define BY32(A, B, C, D, X) VBROADCASTSS operands_by(BX), D
#define BY64(A, B, C, D, X) VBROADCASTSD operands_by(BX), D
#define DIVPSY(b, a, t, u) VDIVPS Y15, a, a
#define DIVPSZ(b, a, t, u) VDIVPS Z15, a, a
#define DIVPDY(b, a, t, u) VDIVPD Y15, a, a
#define DIVPDZ(b, a, t, u) VDIVPD Z15, a, a

// There is no product of bytes: the even and the odd bytes are multiplied as words.
#define MULB(b, a, t, u) \
	VPSRLW $8, a, t; \
	VPSRLW $8, b, u; \
	VPMULLW u, t, t; \
	VPSLLW $8, t, t; \
	VPMULLW b, a, a; \
	VPSLLW $8, a, a; \
	VPSRLW $8, a, a; \
	VORPS t, a, a

// AVX2 has no product of 64-bit integers: low * low + (high * low + low * high) << 32.
#define MULQY(b, a, t, u) \
	VPSRLQ $32, a, t; \
	VPMULUDQ b, t, t; \
	VPSRLQ $32, b, u; \
	VPMULUDQ a, u, u; \
	VPADDQ u, t, t; \
	VPSLLQ $32, t, t; \
	VPMULUDQ b, a, a; \
	VPADDQ t, a, a

#define MULQZ(b, a, t, u) VPMULLQ b, a, a

// AVX2 has no minimum of 64-bit integers, but a comparison of signed ones. Unsigned integers
// compare in the same way with their highest bit flipped.
#define MINSQY(b, a, t, u) \
	VPCMPGTQ b, a, t; \
	VBLENDVPD t, b, a, a

#define MAXSQY(b, a, t, u) \
	VPCMPGTQ a, b, t; \
	VBLENDVPD t, b, a, a

#define MINUQY(b, a, t, u) \
	VXORPS Y15, a, t; \
	VXORPS Y15, b, u; \
	VPCMPGTQ u, t, t; \
	VBLENDVPD t, b, a, a

#define MAXUQY(b, a, t, u) \
	VXORPS Y15, a, t; \
	VXORPS Y15, b, u; \
	VPCMPGTQ t, u, t; \
	VBLENDVPD t, b, a, a

#define MINSQZ(b, a, t, u) VPMINSQ b, a, a
#define MAXSQZ(b, a, t, u) VPMAXSQ b, a, a
#define MINUQZ(b, a, t, u) VPMINUQ b, a, a
#define MAXUQZ(b, a, t, u) VPMAXUQ b, a, a
