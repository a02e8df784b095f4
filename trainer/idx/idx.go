// Package idx reads IDX files, the format of MNIST and similar data sets: a magic number, the
// dimensions as big-endian 32-bit integers, and unsigned bytes. Files may be compressed with gzip,
// which is recognised by their content, not by their name.
//
//	train, err := idx.Open("data/mnist", "train", 10) // or "t10k"
//	defer train.Close()
//	label := train.Sample(pixels, 0) // 784 pixels from 0 to 1
//
// # Memory
//
// Open maps uncompressed files into memory. No data is copied, all processes of a host share the
// pages that they have read, and the kernel reclaims pages when memory is short. So a data set may
// be larger than the memory. A compressed file is decompressed into memory instead; decompress
// large files before with "gzip -dk". Mapped files must not change while they are in use. If a file
// becomes shorter, Sample returns -1 and Err returns the cause.
//
// # Untrusted files
//
// Every error names the file. The size that a header claims is checked before memory is allocated:
// against the size of the file if it is mapped, and against limits otherwise. A compressed file may
// decompress to at most a hundred times its size, a ratio that images do not reach. So neither
// damaged nor malicious files can exhaust the memory.
package idx

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limits of the sizes in a header. All but MaxSide apply only to files that are decoded into
// memory.
const (
	MaxItems  = 1 << 26 // images or labels in a file
	MaxSide   = 1 << 14 // rows or columns of an image
	MaxPixels = 1 << 30 // bytes of all images together
)

// Limits against decompression bombs. Compressed images typically have a third to a tenth of the
// size of the pixels. Decompression fails when its output exceeds both freeBytes and maxRatio times
// the compressed bytes that were read.
const (
	maxRatio  = 100
	freeBytes = 64 << 20
)

// Magic numbers: two zero bytes, the element type (8 is unsigned bytes), the number of
// dimensions.
const (
	magicLabels = 0x0801
	magicImages = 0x0803
)

// ErrFormat reports that a file violates the format or a limit. All errors of this package wrap it,
// except errors of the file system.
var ErrFormat = errors.New("not a valid IDX file")

// kind is the type of a file: images or labels.
type kind struct {
	what  string // for errors
	magic uint32 // the first 4 bytes of the file
	dims  int    // the first dimension is the number of records
}

// imageFile and labelFile return the kinds of the two files of a data set.
func imageFile() kind { return kind{"images", magicImages, 3} }
func labelFile() kind { return kind{"labels", magicLabels, 1} }

// bytes returns the length of the header.
func (k kind) bytes() int { return 4 + 4*k.dims }

// describe returns the claim of a header as text for an error.
func (k kind) describe(dims []uint64) string {
	if len(dims) == 3 {
		return fmt.Sprintf("%d images of %d x %d pixels", dims[0], dims[1], dims[2])
	}
	return fmt.Sprintf("%d %s", dims[0], k.what)
}

// size returns the product of all dimensions but the first: the bytes of a record.
func size(dims []uint64) uint64 {
	n := uint64(1)
	for _, d := range dims[1:] {
		n *= d
	}
	return n
}

// Images are greyscale images of one size, stored one after the other and row by row. A pixel is a
// byte from 0, the background, to 255. The caller owns the memory.
type Images struct {
	Count, Rows, Cols int
	Pixels            []byte // Count * Rows * Cols
}

// ReadImages reads a file of images into memory, compressed by gzip or not. The error names the
// file; it wraps ErrFormat if the file is not a complete file of images.
func ReadImages(path string) (*Images, error) {
	return readFile(path, DecodeImages)
}

// ReadLabels reads a file of labels into memory, compressed by gzip or not. Each label must be
// below classes. It returns the errors of ReadImages.
func ReadLabels(path string, classes int) ([]byte, error) {
	return readFile(path, func(r io.Reader) ([]byte, error) { return DecodeLabels(r, classes) })
}

// DecodeImages reads images from r, compressed or not. r must end after them.
func DecodeImages(r io.Reader) (*Images, error) {
	dims, pixels, err := decode(r, imageFile())
	if err != nil {
		return nil, err
	}
	return &Images{Count: int(dims[0]), Rows: int(dims[1]), Cols: int(dims[2]), Pixels: pixels}, nil
}

// DecodeLabels reads labels, each below classes, from r, compressed or not. r must end after
// them.
func DecodeLabels(r io.Reader, classes int) ([]byte, error) {
	_, labels, err := decode(r, labelFile())
	if err == nil {
		err = checkClasses(bytes.NewReader(labels), classes)
	}
	if err != nil {
		return nil, err
	}
	return labels, nil
}

// decode reads a file of kind k into memory, and returns its dimensions and its data.
func decode(r io.Reader, k kind) (dims []uint64, body []byte, err error) {
	source := &countingReader{r: r}
	r, unpacked, err := decompress(source)
	if err != nil {
		return nil, nil, err
	}
	if dims, err = readHeader(r, k); err != nil {
		return nil, nil, err
	}
	if err := checkSides(dims, k); err != nil {
		return nil, nil, err
	}
	// checkSides limits the sides, so the product is below 2^60.
	if dims[0] > MaxItems || dims[0]*size(dims) > MaxPixels {
		return nil, nil, formatErrorf("header claims %s, more than the limit for files in memory: decompress it, so that it is mapped", k.describe(dims))
	}
	allowed := func(got uint64) bool { return !unpacked || got <= freeBytes || got <= maxRatio*source.n }
	if body, err = readBody(r, dims[0]*size(dims), allowed); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", k.describe(dims), err)
	}
	return dims, body, nil
}

// checkSides returns an error for sides of images that are zero or above MaxSide.
func checkSides(dims []uint64, k kind) error {
	for _, side := range dims[1:] {
		if side > MaxSide {
			return formatErrorf("header claims %s, more than the largest side of an image", k.describe(dims))
		}
	}
	if size(dims) == 0 && dims[0] > 0 {
		return formatErrorf("header claims %s", k.describe(dims))
	}
	return nil
}

// checkClasses returns an error unless every label is below classes. A model would use the label as
// an index.
func checkClasses(labels io.Reader, classes int) error {
	buf := make([]byte, 1<<16)
	for at := 0; ; {
		n, err := labels.Read(buf)
		for j, l := range buf[:n] {
			if int(l) >= classes {
				return formatErrorf("label %d is %d, but there are %d classes", at+j, l, classes)
			}
		}
		at += n
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readFile decodes the file at path. Its errors name the path.
func readFile[V any](path string, decode func(io.Reader) (V, error)) (V, error) {
	var zero V
	f, err := os.Open(path)
	if err != nil {
		return zero, fmt.Errorf("idx: %w", err) // an *os.PathError has operation and path
	}
	defer f.Close()
	v, err := decode(f)
	if err != nil {
		return zero, withPath(path, err)
	}
	return v, nil
}

// withPath adds the path to an error, and a remedy to a violation of the format.
func withPath(path string, err error) error {
	if errors.Is(err, ErrFormat) {
		return fmt.Errorf("idx: read %s: %w; replace it by a complete file of this kind", path, err)
	}
	return fmt.Errorf("idx: read %s: %w", path, err)
}

// decompress returns a reader of r's content, decompressed if r begins with gzip's magic number.
func decompress(r io.Reader) (out io.Reader, unpacked bool, err error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	if head, _ := buffered.Peek(2); !packed(head) {
		return buffered, false, nil // the first read returns an error of Peek again
	}
	packed, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, false, formatErrorf("gzip header: %w", err)
	}
	return packed, true, nil
}

// countingReader is a reader that counts the bytes read through it.
type countingReader struct {
	r io.Reader
	n uint64
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += uint64(n)
	return n, err
}

// packed reports whether head is the beginning of a gzip file.
func packed(head []byte) bool { return bytes.Equal(head, []byte{0x1f, 0x8b}) }

// readHeader reads the header of a file of kind k and returns its dimensions. The dimensions are
// uint64, so that the product of three dimensions within the limits does not overflow.
func readHeader(r io.Reader, k kind) ([]uint64, error) {
	head := make([]byte, k.bytes())
	if got, err := io.ReadFull(r, head); err != nil {
		return nil, formatErrorf("header of %s has %d bytes, want %d: %w", k.what, got, len(head), err)
	}
	if m := binary.BigEndian.Uint32(head); m != k.magic {
		return nil, formatErrorf("magic number is %#08x, want %#08x for %s", m, k.magic, k.what)
	}
	dims := make([]uint64, k.dims)
	for i := range dims {
		dims[i] = uint64(binary.BigEndian.Uint32(head[4+4*i:]))
	}
	return dims, nil
}

// readBody reads exactly n bytes, and fails if more follow. The buffer grows with the bytes that
// arrive, and does not depend on the size that the header claims. allowed reports whether got bytes
// are within the limit for a compressed file.
func readBody(r io.Reader, n uint64, allowed func(got uint64) bool) ([]byte, error) {
	body := make([]byte, 0, min(n, 1<<20))
	for uint64(len(body)) < n {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(n, 2*uint64(cap(body)))), body...)
		}
		got, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+got]
		switch {
		case !allowed(uint64(len(body))):
			return nil, formatErrorf("is compressed to less than 1/%d, unlike images: decompress it with gzip -dk if it is genuine", maxRatio)
		case errors.Is(err, io.EOF) && uint64(len(body)) < n:
			return nil, formatErrorf("ends after %d of %d bytes", len(body), n)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, formatErrorf("after %d of %d bytes: %w", len(body), n, err)
		}
	}
	// Try to read one more byte: there must be none. For gzip, reading up to the end also verifies
	// the checksum.
	switch got, err := io.ReadFull(r, make([]byte, 1)); {
	case got > 0:
		return nil, formatErrorf("has more than the %d bytes that its header claims", n)
	case !errors.Is(err, io.EOF):
		return nil, formatErrorf("after %d of %d bytes: %w", n, n, err)
	}
	return body, nil
}

// formatErrorf returns a formatted error that wraps ErrFormat.
func formatErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}
