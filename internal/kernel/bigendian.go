//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package kernel

// The bytes of a vector are its wire form (see Bytes), which is little-endian. On the processors
// named above ranks would exchange vectors with reversed bytes. So the build fails here, and the
// compiler's message has the reason.
var _ int = "elrun needs a little-endian machine: vectors go onto the wire as they lie in memory"
