// Package npy reads data sets from the files that numpy.save writes: an array of inputs, whose
// first dimension is the number of samples, and an array of labels.
//
//	set, err := npy.Open(npy.Files{Inputs: "x.npy", Labels: "y.npy", Classes: 10, Scale: 1.0 / 255})
//	defer set.Close()
//	label := set.Sample(inputs, 0) // set.Size() inputs
//
// The package reads versions 1, 2 and 3 of the format, in C order, with little-endian elements:
// booleans, integers of 8 to 64 bits, or floating-point numbers of 16 to 64 bits.
//
// Files are mapped into memory. Opening copies no data, all processes of a host share the pages
// that they have read, and the kernel reclaims pages when memory is short. So a data set may be
// larger than the memory. The files must not change while they are in use. If a file becomes
// shorter, Sample returns -1 and Err returns the cause.
//
// Every error names the file. For files of an unsupported kind it also says how to convert them
// in Python.
package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/elrun/elrun/trainer/internal/mmap"
)

// ErrFormat reports that a file violates the format, or is unsupported or unsuitable. All errors of
// this package wrap it, except errors of the file system.
var ErrFormat = errors.New("not a usable npy file")

// Array is a mapped file, seen as rows along its first dimension. It is safe for concurrent use
// until Close.
type Array struct {
	Type  string // element type in NumPy's notation, as in <f4
	Shape []int  // at least one dimension

	path string
	kind element
	rows *mmap.Records
}

// OpenArray maps the file at path. The caller closes the array. The error names the file; it wraps
// ErrFormat if the file has no usable header, or another size than its header requires.
func OpenArray(path string) (*Array, error) {
	f, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err) // err names operation and path
	}
	a, err := arrayOf(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("npy: read %s: %w", path, err), f.Close())
	}
	return a, nil
}

// arrayOf returns the array in a file. It returns an error unless the file has exactly the size
// that its header requires.
func arrayOf(f *mmap.File) (*Array, error) {
	h, start, err := readHeader(f.Section(0, f.Size()))
	if err != nil {
		return nil, err
	}
	kind, err := elementOf(h.descr)
	if err != nil {
		return nil, err
	}
	if h.fortran {
		return nil, formatErrorf("it is in Fortran order; save numpy.ascontiguousarray(a)")
	}
	row, want, err := sizes(h.shape, kind.size)
	if err != nil {
		return nil, err
	}
	// In a shorter file a later read would fail, and the header of a longer file is wrong.
	if got := f.Size() - start; got != want {
		return nil, formatErrorf("it has %d bytes of elements, but the shape %v of %s needs %d; save it again", got, h.shape, h.descr, want)
	}
	return &Array{Type: h.descr, Shape: h.shape, path: f.Path(), kind: kind, rows: f.Records(start, row, h.shape[0])}, nil
}

// sizes returns the number of bytes of a row and of all rows. element is the size of an element in
// bytes. The shape comes from the file, so each product is checked for overflow: a product that
// wrapped around could equal the size of the file.
func sizes(shape []int, element int) (row int, all int64, err error) {
	if len(shape) == 0 {
		return 0, 0, formatErrorf("it is a single number; save an array of samples")
	}
	n := uint64(element)
	for _, d := range shape[1:] {
		if d > 0 && n > math.MaxInt64/uint64(d) {
			return 0, 0, formatErrorf("shape %v is larger than any file", shape)
		}
		n *= uint64(d)
	}
	switch count := uint64(shape[0]); {
	case n == 0 && count > 0:
		return 0, 0, formatErrorf("shape %v has samples without elements", shape)
	case n > math.MaxInt || count > 0 && n > math.MaxInt64/count:
		return 0, 0, formatErrorf("shape %v is larger than any file", shape)
	}
	return int(n), int64(n) * int64(shape[0]), nil
}

// Len returns the number of rows.
func (a *Array) Len() int { return a.rows.Len() }

// Size returns the number of elements in a row.
func (a *Array) Size() int { return a.rows.Size() / a.kind.size }

// block is the number of bytes that are read at a time, into a buffer on the stack. It is a
// multiple of all element sizes.
const block = 1 << 10

// Row writes the elements of row i, rounded to float32, to dst, which has at least Size elements.
// It panics if there is no row i. An error names the file and leaves dst undefined.
func (a *Array) Row(dst []float32, i int) error {
	var buf [block]byte
	dst = dst[:a.Size()]
	for at := 0; at < a.rows.Size(); at += block {
		part := buf[:min(block, a.rows.Size()-at)]
		if err := a.rows.Read(part, i, at); err != nil {
			return fmt.Errorf("npy: row %d: %w", i, err)
		}
		dst = dst[a.kind.floats(dst, part):]
	}
	return nil
}

// integer returns the single element of row i in an array of integers.
func (a *Array) integer(i int) (int64, error) {
	var buf [8]byte
	b := buf[:a.kind.size]
	if err := a.rows.Read(b, i, 0); err != nil {
		return 0, fmt.Errorf("npy: row %d: %w", i, err)
	}
	return a.kind.integer(b), nil
}

// Close unmaps the file. No other method may be in progress, or be called afterwards.
func (a *Array) Close() error { return a.rows.Close() }

// The format is specified by NumPy (numpy.lib.format, and NEP 1). A file begins with magic, two
// bytes of version, and the length of the header, which is limited to maxHeader bytes. The length
// is a little-endian integer of 2 bytes in version 1 and of 4 bytes later. Because of the limit, a
// wrong length does not cause an allocation of 4 GiB.
const (
	magic     = "\x93NUMPY"
	maxHeader = 1 << 20
)

// readHeader reads the beginning of a file and returns its header and the offset of the elements in
// the file.
func readHeader(r io.Reader) (h header, start int64, err error) {
	head := make([]byte, len(magic)+2)
	got, err := io.ReadFull(r, head)
	if err := checkMagic(head[:got]); err != nil {
		return h, 0, err
	}
	if err != nil {
		return h, 0, formatErrorf("it ends after %d bytes: %w", got, err)
	}
	length := make([]byte, 4)
	switch major, minor := head[6], head[7]; {
	case major == 1 && minor == 0:
		_, err = io.ReadFull(r, length[:2])
		start = 2
	case (major == 2 || major == 3) && minor == 0:
		_, err = io.ReadFull(r, length)
		start = 4
	default:
		return h, 0, formatErrorf("it has version %d.%d of the format, want 1.0, 2.0 or 3.0; save it again with a current numpy.save", major, minor)
	}
	n := binary.LittleEndian.Uint32(length)
	if err == nil && n > maxHeader {
		return h, 0, formatErrorf("its header claims %d bytes, want at most %d; save it again", n, maxHeader)
	}
	text := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(r, text)
	}
	if err != nil {
		return h, 0, formatErrorf("it ends before its elements: %w; save it again", err)
	}
	if h, err = parseHeader(string(text)); err != nil {
		return h, 0, fmt.Errorf("%w: in the header", err)
	}
	return h, start + int64(len(head)) + int64(n), nil
}

// checkMagic checks the magic number. It recognises some other formats and gives advice for them.
func checkMagic(head []byte) error {
	switch {
	case bytes.HasPrefix(head, []byte(magic)):
		return nil
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return formatErrorf("it is a zip archive, as numpy.savez writes; unpack it and name one of its files")
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return formatErrorf("it is compressed; unpack it with gunzip, so that it can be mapped")
	}
	return formatErrorf("it begins with %q, want %q; write it with numpy.save", head, magic)
}

// formatErrorf returns a formatted error that wraps ErrFormat.
func formatErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}
