package idx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/elrun/elrun/trainer/internal/mmap"
)

// Set is a data set of images with labels. It is safe for concurrent use until Close.
type Set struct {
	Count, Rows, Cols int

	images, labels *mmap.Records // a record for each image
	failure        mmap.Failure
}

// Open opens the files name-images-idx3-ubyte and name-labels-idx1-ubyte in the folder dir. If a
// file does not exist, Open opens the file with .gz after its name. The parts of MNIST have the
// names "train" and "t10k". Uncompressed files are mapped. Compressed files are decompressed into
// memory. Each label must be below classes. The caller closes the set when its last user has
// finished.
func Open(dir, name string, classes int) (*Set, error) { return load(dir, name, classes, openRecords) }

// Load is like Open, but always reads the files into memory, so the files may change later. The
// images may have up to MaxPixels bytes.
func Load(dir, name string, classes int) (*Set, error) {
	return load(dir, name, classes, decodeRecords)
}

// source is a function that opens the file at path as records. It also returns the dimensions in
// the header of the file.
type source func(path string, k kind) (*mmap.Records, []int, error)

// load returns the set of an image file and a label file, each opened by open.
func load(dir, name string, classes int, open source) (*Set, error) {
	imagePath, err := find(dir, name+"-images-idx3-ubyte")
	if err != nil {
		return nil, err
	}
	labelPath, err := find(dir, name+"-labels-idx1-ubyte")
	if err != nil {
		return nil, err
	}
	images, dims, err := open(imagePath, imageFile())
	if err != nil {
		return nil, err
	}
	labels, _, err := open(labelPath, labelFile())
	if err != nil {
		return nil, errors.Join(err, images.Close())
	}
	s := &Set{Count: dims[0], Rows: dims[1], Cols: dims[2], images: images, labels: labels}
	if err = checkClasses(labels.All(), classes); err != nil {
		err = withPath(labelPath, err)
	} else if images.Len() != labels.Len() {
		err = fmt.Errorf("idx: %s has %d images, %s %d labels: %w", imagePath, images.Len(), labelPath, labels.Len(), ErrFormat)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// find returns the path of the file name in dir, or of name.gz if there is no such file.
func find(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	for _, p := range []string{path, path + ".gz"} {
		_, err := os.Stat(p)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("idx: %w", err)
		}
	}
	return "", fmt.Errorf("idx: neither %s nor %s.gz: %w", path, name, fs.ErrNotExist)
}

// Len returns the number of images.
func (s *Set) Len() int { return s.Count }

// block is the number of pixels that are read at a time, into a buffer on the stack.
const block = 1 << 10

// Sample writes the pixels of image i, scaled to [0, 1], to dst, which has at least Rows * Cols
// elements, and returns its label. It panics if there is no image i. If reading the file fails it
// returns -1, and Err returns the cause.
func (s *Set) Sample(dst []float32, i int) int {
	var buf [block]byte
	dst = dst[:s.images.Size()]
	for at := 0; at < len(dst); at += block {
		part := buf[:min(block, len(dst)-at)]
		if err := s.images.Read(part, i, at); err != nil {
			return s.failed(i, err)
		}
		to := dst[at:][:len(part)]
		for j, p := range part {
			to[j] = float32(p) * (1.0 / 255)
		}
	}
	if err := s.labels.Read(buf[:1], i, 0); err != nil {
		return s.failed(i, err)
	}
	return int(buf[0])
}

// failed records the error of reading sample i for Err, and returns Sample's result.
func (s *Set) failed(i int, err error) int {
	s.failure.Note(fmt.Errorf("idx: image %d: %w", i, err))
	return -1
}

// Err returns the first error of Sample, which names the file, or nil. It is safe for concurrent
// use.
func (s *Set) Err() error { return s.failure.Err() }

// Prefetch starts reading the given images ahead if their file is mapped, and ignores indices out
// of range. It may wait for the queue of the disk, at most until ctx ends, but not for the data.
func (s *Set) Prefetch(ctx context.Context, samples []int) {
	s.images.Prefetch(ctx, samples)
	s.labels.Prefetch(ctx, samples)
}

// WriteTo writes all pixels and then all labels to w, and returns the number of bytes. The bytes
// are the same for compressed and uncompressed files. It reads the files and not the mappings,
// whose pages would count as memory of this process.
func (s *Set) WriteTo(w io.Writer) (int64, error) {
	n, err := s.images.WriteTo(w)
	if err == nil {
		var m int64
		m, err = s.labels.WriteTo(w)
		n += m
	}
	if err != nil {
		return n, fmt.Errorf("idx: read all of a set: %w", err)
	}
	return n, nil
}

// Close unmaps the files. No other method may be in progress, or be called afterwards.
func (s *Set) Close() error { return errors.Join(s.images.Close(), s.labels.Close()) }

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
