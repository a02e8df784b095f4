package npy

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/elrun/elrun/dtype"
)

// element is the type of an array's elements.
type element struct {
	code byte // as in NumPy: b boolean, i signed, u unsigned, f floating-point
	size int  // in bytes
}

// elementOf parses the element type (descr) of a header.
func elementOf(descr string) (element, error) {
	switch descr {
	case "|b1":
		return element{'b', 1}, nil
	case "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8":
		return element{descr[1], int(descr[2] - '0')}, nil
	}
	if len(descr) > 1 && descr[0] == '>' && strings.ContainsRune("iuf", rune(descr[1])) {
		return element{}, formatErrorf("its elements are big-endian, %s; save a.astype('<%s')", descr, descr[1:])
	}
	return element{}, formatErrorf("its elements are of type %q; save a.astype('<f4'), or another integer or float type", descr)
}

// integers reports whether the elements are integers; booleans are not.
func (e element) integers() bool { return e.code == 'i' || e.code == 'u' }

// floats converts all elements in src to float32, rounded to nearest, writes them to dst, and
// returns their number. Bytes and float32, the usual types of data sets, have their own loops
// without a switch for each element.
func (e element) floats(dst []float32, src []byte) int {
	n := len(src) / e.size
	dst = dst[:n]
	switch {
	case e.code == 'u' && e.size == 1:
		for i := range dst {
			dst[i] = float32(src[i])
		}
	case e.code == 'f' && e.size == 4:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	default:
		for i := range dst {
			dst[i] = e.float(src[i*e.size:])
		}
	}
	return n
}

// float converts the first element of src.
func (e element) float(src []byte) float32 {
	switch {
	case e.code == 'f' && e.size == 2:
		return dtype.Float16(binary.LittleEndian.Uint16(src)).Float32()
	case e.code == 'f' && e.size == 8:
		return float32(math.Float64frombits(binary.LittleEndian.Uint64(src)))
	case e.code == 'u':
		return float32(unsigned(src[:e.size]))
	case e.code == 'b' && src[0] != 0:
		return 1 // NumPy writes only 1 for true, but reads any nonzero byte
	case e.code == 'b':
		return 0
	}
	return float32(e.integer(src[:e.size]))
}

// integer returns the integer that src consists of. Unsigned values from 2^63 on become negative,
// so that a check for labels below 0 refuses them.
func (e element) integer(src []byte) int64 {
	u := unsigned(src)
	if e.code == 'u' {
		return int64(u)
	}
	unused := 64 - 8*len(src)
	return int64(u<<unused) >> unused
}

// unsigned returns the little-endian number that src consists of, of up to 8 bytes.
func unsigned(src []byte) uint64 {
	u := uint64(0)
	for i, b := range src {
		u |= uint64(b) << (8 * i)
	}
	return u
}
