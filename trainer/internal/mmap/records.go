package mmap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
)

// Records are pieces of one size that stand one after the other, in a file or in memory.
// They are safe for concurrent use.
type Records struct {
	file   *File  // nil if they are in memory
	memory []byte // of all, if there is no file
	first  int64  // where the first begins in the file
	size   int    // bytes of each
	count  int
}

// Records returns the part of the file that begins at first and holds count records of
// size bytes each, and owns the file from now on. It panics if they are not in the file:
// whoever has read its header has looked.
func (f *File) Records(first int64, size, count int) *Records {
	if first < 0 || size < 0 || count < 0 || first > f.size || size > 0 && int64(count) > (f.size-first)/int64(size) {
		panic(fmt.Sprintf("mmap: %d records of %d bytes from %d on in the %d bytes of %s", count, size, first, f.size, f.path))
	}
	return &Records{file: f, first: first, size: size, count: count}
}

// InMemory returns the records of size bytes that b consists of, without a copy. It
// panics if the length of b is no multiple of size.
func InMemory(b []byte, size int) *Records {
	if len(b) == 0 {
		return &Records{size: size}
	}
	if size < 1 || len(b)%size != 0 {
		panic(fmt.Sprintf("mmap: %d bytes are no records of %d bytes", len(b), size))
	}
	return &Records{memory: b, size: size, count: len(b) / size}
}

// Len is the number of records.
func (r *Records) Len() int { return r.count }

// Size is the number of bytes of each.
func (r *Records) Size() int { return r.size }

// Read copies len(dst) bytes of record i to dst, from byte at of the record on. It panics
// if there is no such record or it has not so many bytes. Errors are those of
// File.ReadAt, and leave dst undefined.
func (r *Records) Read(dst []byte, i, at int) error {
	if i < 0 || i >= r.count || at < 0 || len(dst) > r.size-at {
		panic(fmt.Sprintf("mmap: %d bytes from %d on of record %d, there are %d of %d bytes", len(dst), at, i, r.count, r.size))
	}
	off := int64(i)*int64(r.size) + int64(at)
	if r.file == nil {
		copy(dst, r.memory[off:])
		return nil
	}
	_, err := r.file.ReadAt(dst, r.first+off)
	return err
}

// All returns a reader of all records from beginning to end. It leaves the mapping alone,
// as File.Section does.
func (r *Records) All() io.Reader {
	if r.file == nil {
		return bytes.NewReader(r.memory)
	}
	return r.file.Section(r.first, int64(r.size)*int64(r.count))
}

// WriteTo writes All to w, and returns how many bytes these were. It finds out, as readers
// do not, if the file ends before the records do.
func (r *Records) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, r.All())
	if err == nil && n < int64(r.size)*int64(r.count) {
		err = fmt.Errorf("read %s: %w", r.file.path, ErrShrunk)
	}
	return n, err
}

// Prefetch has those of the records with the given indices read ahead that are in a
// file, as File.WillNeed says. Indices that do not exist are passed over.
func (r *Records) Prefetch(ctx context.Context, indices []int) {
	if r.file == nil {
		return
	}
	ranges := make([][2]int64, 0, len(indices))
	for _, i := range indices {
		if i >= 0 && i < r.count {
			first := r.first + int64(i)*int64(r.size)
			ranges = append(ranges, [2]int64{first, first + int64(r.size)})
		}
	}
	r.file.WillNeed(ctx, ranges)
}

// Close closes the file, if there is one.
func (r *Records) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Failure keeps the first error that it is told of, for those who cannot return one. The
// zero value has none. It is safe for concurrent use.
type Failure struct {
	mu  sync.Mutex
	err error
}

// Note takes an error, unless there is one already.
func (f *Failure) Note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// Err returns the first error that Note was told of, or nil.
func (f *Failure) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
