package mmap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
)

// Records are pieces of equal size, one after the other, in a file or in memory. They are safe
// for concurrent use.
type Records struct {
	file   *File  // nil if the records are in memory
	memory []byte // all records, if there is no file
	first  int64  // offset of the first record in the file
	size   int    // bytes per record
	count  int    // number of records
}

// InMemory returns the records of size bytes in b, without a copy. It panics if the length of b
// is not a multiple of size.
func InMemory(b []byte, size int) *Records {
	if len(b) == 0 {
		return &Records{size: size}
	}
	if size < 1 || len(b)%size != 0 {
		panic(fmt.Sprintf("mmap: %d bytes cannot be cut into records of %d bytes", len(b), size))
	}
	return &Records{memory: b, size: size, count: len(b) / size}
}

// Len returns the number of records.
func (r *Records) Len() int { return r.count }

// Size returns the number of bytes per record.
func (r *Records) Size() int { return r.size }

// Read copies len(dst) bytes of record i to dst. It begins at the offset at in the record. It
// panics if the record does not exist or is too short. Errors are the errors of File.ReadAt; they
// leave dst undefined.
func (r *Records) Read(dst []byte, i, at int) error {
	if i < 0 || i >= r.count || at < 0 || len(dst) > r.size-at {
		panic(fmt.Sprintf("mmap: read %d bytes from byte %d of record %d: want a part of one of the %d records of %d bytes", len(dst), at, i, r.count, r.size))
	}
	off := int64(i)*int64(r.size) + int64(at)
	if r.file == nil {
		copy(dst, r.memory[off:])
		return nil
	}
	_, err := r.file.ReadAt(dst, r.first+off)
	return err
}

// All returns a reader of all records, from beginning to end. Like File.Section it does not use
// the mapping.
func (r *Records) All() io.Reader {
	if r.file == nil {
		return bytes.NewReader(r.memory)
	}
	return r.file.Section(r.first, int64(r.size)*int64(r.count))
}

// WriteTo writes all records to w and returns the number of bytes. Unlike the reader of All, it
// returns an error if the file ends before the records do.
func (r *Records) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, r.All())
	if err == nil && n < int64(r.size)*int64(r.count) {
		err = fmt.Errorf("read %s: %w", r.file.path, ErrShrunk)
	}
	return n, err
}

// Prefetch advises the system to read the records with the given indices (File.WillNeed). It
// skips indices that do not exist, and does nothing for records in memory.
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

// Failure keeps the first error passed to Note, for callbacks that cannot return an error. The zero
// value has no error. It is safe for concurrent use.
type Failure struct {
	// mu guards the fields below.
	mu  sync.Mutex
	err error
}

// Note records err unless an error is already recorded.
func (f *Failure) Note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

// Err returns the first recorded error, or nil.
func (f *Failure) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
