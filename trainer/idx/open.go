package idx

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/elrun/elrun/trainer/internal/mmap"
)

// openRecords maps the file at path, or decodes it into memory if it is compressed. It also
// returns the dimensions in its header.
func openRecords(path string, k kind) (*mmap.Records, []int, error) {
	f, err := mmap.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("idx: %w", err) // err names operation and path
	}
	all := f.Section(0, f.Size())
	dims, err := mappable(f, k)
	if errors.Is(err, errPacked) {
		r, dims, err := recordsFrom(all, k)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, nil, withPath(path, err)
		}
		return r, dims, nil
	}
	if err != nil {
		return nil, nil, errors.Join(withPath(path, err), f.Close())
	}
	return f.Records(int64(k.bytes()), int(size(dims)), int(dims[0])), ints(dims), nil
}

// errPacked reports that a file is compressed and cannot be mapped. No exported function returns
// it.
var errPacked = errors.New("packed")

// mappable returns the dimensions in the header of an uncompressed file. It returns an error unless
// the file has exactly the size that the dimensions require, so that records never end outside the
// mapping.
func mappable(f *mmap.File, k kind) ([]uint64, error) {
	head := f.Section(0, int64(k.bytes()))
	start := make([]byte, 2)
	if n, err := io.ReadFull(f.Section(0, 2), start); err == nil && packed(start[:n]) {
		return nil, errPacked
	}
	dims, err := readHeader(head, k)
	if err != nil {
		return nil, err
	}
	if err := checkSides(dims, k); err != nil {
		return nil, err
	}
	// checkSides limits the sides, so want is below 2^60.
	got, want := uint64(f.Size())-uint64(k.bytes()), dims[0]*size(dims)
	switch {
	case got < want:
		return nil, formatErrorf("ends after %d of %d bytes", got, want)
	case got > want:
		return nil, formatErrorf("has more than the %d bytes that its header claims", want)
	case want > math.MaxInt:
		return nil, formatErrorf("%d bytes exceed the address space of this system", want)
	}
	return dims, nil
}

// decodeRecords reads the file at path into memory.
func decodeRecords(path string, k kind) (*mmap.Records, []int, error) {
	var dims []int
	r, err := readFile(path, func(from io.Reader) (r *mmap.Records, err error) {
		r, dims, err = recordsFrom(from, k)
		return r, err
	})
	return r, dims, err
}

// recordsFrom decodes a file of kind k into memory.
func recordsFrom(from io.Reader, k kind) (*mmap.Records, []int, error) {
	dims, body, err := decode(from, k)
	if err != nil {
		return nil, nil, err
	}
	return mmap.InMemory(body, int(size(dims))), ints(dims), nil
}

// ints converts dimensions that are known to fit an int.
func ints(dims []uint64) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}
