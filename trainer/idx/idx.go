// Package idx reads the IDX files in which MNIST and its relatives are published:
// a magic number, the dimensions as big-endian 32-bit integers, and unsigned bytes.
// Files may be compressed with gzip, whatever their name.
//
//	train, err := idx.Load("data/mnist", "train", 10) // or "t10k"
//	label := train.Sample(pixels, 0)                   // 784 pixels from 0 to 1
//
// Every error names the file. What a header claims is checked against limits
// before memory is taken, so that a damaged file cannot ask for too much.
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

// The limits of what a header may claim.
const (
	MaxItems  = 1 << 26 // images or labels in a file
	MaxSide   = 1 << 14 // rows or columns of an image
	MaxPixels = 1 << 30 // bytes of all images together
)

// The magic numbers: two zeros, the type (8 is unsigned bytes), the dimensions.
const (
	magicLabels = 0x0801
	magicImages = 0x0803
)

// ErrFormat says that a file is not what its place requires; errors.Is finds it
// in the errors of this package that are not those of the file system.
var ErrFormat = errors.New("not a valid IDX file")

// Images are grey images of one size, one after the other, row by row.
type Images struct {
	Count, Rows, Cols int
	Pixels            []byte // Count * Rows * Cols
}

// ReadImages reads a file of images.
func ReadImages(path string) (*Images, error) {
	return readFile(path, DecodeImages)
}

// ReadLabels reads a file of labels, each of which must be below classes.
func ReadLabels(path string, classes int) ([]byte, error) {
	return readFile(path, func(r io.Reader) ([]byte, error) { return DecodeLabels(r, classes) })
}

// DecodeImages reads images from r, compressed or not, up to its end.
func DecodeImages(r io.Reader) (*Images, error) {
	r, err := plain(r)
	if err != nil {
		return nil, err
	}
	dims, err := readHeader(r, magicImages, "images", 3)
	if err != nil {
		return nil, err
	}
	count, rows, cols := dims[0], dims[1], dims[2]
	if count > MaxItems || rows > MaxSide || cols > MaxSide || count*rows*cols > MaxPixels {
		return nil, badf("header claims %d images of %d x %d, more than this reader takes", count, rows, cols)
	}
	if rows*cols == 0 && count > 0 {
		return nil, badf("header claims %d images of %d x %d pixels", count, rows, cols)
	}
	pixels, err := readBody(r, count*rows*cols)
	if err != nil {
		return nil, fmt.Errorf("%d images of %d x %d: %w", count, rows, cols, err)
	}
	return &Images{Count: int(count), Rows: int(rows), Cols: int(cols), Pixels: pixels}, nil
}

// DecodeLabels reads labels from r, compressed or not, up to its end.
func DecodeLabels(r io.Reader, classes int) ([]byte, error) {
	r, err := plain(r)
	if err != nil {
		return nil, err
	}
	dims, err := readHeader(r, magicLabels, "labels", 1)
	if err != nil {
		return nil, err
	}
	if dims[0] > MaxItems {
		return nil, badf("header claims %d labels, more than this reader takes", dims[0])
	}
	labels, err := readBody(r, dims[0])
	if err != nil {
		return nil, fmt.Errorf("%d labels: %w", dims[0], err)
	}
	for i, l := range labels {
		if int(l) >= classes {
			return nil, badf("label %d is %d, but there are %d classes", i, l, classes)
		}
	}
	return labels, nil
}

// readFile opens path and decodes it, and puts the path into every error.
func readFile[V any](path string, decode func(io.Reader) (V, error)) (V, error) {
	var zero V
	f, err := os.Open(path)
	if err != nil {
		return zero, fmt.Errorf("idx: %w", err) // an *os.PathError: names operation and path
	}
	defer f.Close()
	v, err := decode(f)
	if err != nil {
		return zero, fmt.Errorf("idx: read %s: %w", path, err)
	}
	return v, nil
}

// plain looks at the first two bytes and unpacks r if they are those of gzip.
func plain(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	if head, _ := buffered.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return buffered, nil // an error of Peek comes again with the first read
	}
	unpacked, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, badf("gzip header: %w", err)
	}
	return unpacked, nil
}

// readHeader reads the magic number and n dimensions. They are uint64 so that the
// product of three checked ones cannot overflow.
func readHeader(r io.Reader, magic uint32, what string, n int) ([]uint64, error) {
	head := make([]byte, 4+4*n)
	if got, err := io.ReadFull(r, head); err != nil {
		return nil, badf("header of %s has %d bytes, want %d: %w", what, got, len(head), err)
	}
	if m := binary.BigEndian.Uint32(head); m != magic {
		return nil, badf("magic number is %#08x, want %#08x for %s", m, magic, what)
	}
	dims := make([]uint64, n)
	for i := range dims {
		dims[i] = uint64(binary.BigEndian.Uint32(head[4+4*i:]))
	}
	return dims, nil
}

// readBody reads exactly n bytes and makes sure that they are the last. The buffer
// grows with what arrives, not with what the header claims.
func readBody(r io.Reader, n uint64) ([]byte, error) {
	var body bytes.Buffer
	got, err := io.Copy(&body, io.LimitReader(r, int64(n)+1))
	switch {
	case err != nil:
		return nil, badf("after %d of %d bytes: %w", got, n, err)
	case uint64(got) < n:
		return nil, badf("ends after %d of %d bytes", got, n)
	case uint64(got) > n:
		return nil, badf("has more than the %d bytes that its header claims", n)
	}
	return body.Bytes(), nil
}

// badf makes an error that is ErrFormat.
func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}
