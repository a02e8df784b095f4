// Package mmap reads files through a memory mapping. Opening a file copies nothing, a read costs
// no system call, and the pages belong to the page cache: all processes of a host share them, and
// the system reclaims them when memory is short.
//
//	f, err := mmap.Open("train-images-idx3-ubyte")
//	defer f.Close()
//	n, err := f.ReadAt(buf, 16)                        // an io.ReaderAt
//	f.WillNeed(ctx, [][2]int64{{1 << 20, 1<<20 + 784}}) // read it ahead of its use
//
// Data sets consist of Records, pieces of equal size of a file or of memory.
//
// # Files that change
//
// A mapping shows the current contents of the file. Access to a page beyond the end of a
// truncated file raises SIGBUS, which ends an unprepared process; here the read returns
// ErrShrunk. Detection has the granularity of a page: between the new end and the end of its page
// a read returns zeros. So replace a file by renaming another file over it, which does not affect
// open mappings of the old file.
//
// On systems without mappings, files are read by ordinary system calls. The results are the same,
// but reads are slower.
package mmap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"
)

// ErrShrunk is wrapped by the error of a read from a file that has become shorter since it was
// opened.
var ErrShrunk = errors.New("the file has become shorter since it was opened: do not change it while it is in use; to replace it, rename a new file over it")

// File is a file opened for reading. It is safe for concurrent use.
type File struct {
	path string // as given to Open
	size int64  // bytes at the time of Open
	file *os.File

	mu     sync.RWMutex // read-locked during reads, so that Close cannot unmap data meanwhile
	data   []byte       // the mapping; nil without one
	closed bool
}

// Open opens the regular file at path. Its size is read once. The caller must close the file.
// Errors contain operation and path.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err // an *os.PathError
	}
	f := &File{path: path, file: file}
	if err := f.begin(); err != nil {
		_ = file.Close() // it is only read, so Close loses nothing
		return nil, err
	}
	return f, nil
}

// begin checks the file and maps it.
func (f *File) begin() error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("map %s: it is not a regular file", f.path)
	}
	f.size = info.Size()
	if f.size > math.MaxInt {
		return fmt.Errorf("map %s: %d bytes exceed the address space of this system", f.path, f.size)
	}
	if err := f.mapAll(); err != nil {
		return fmt.Errorf("map %s: %w", f.path, err)
	}
	return nil
}

// Path returns the path that was passed to Open.
func (f *File) Path() string { return f.path }

// Size returns the size of the file in bytes at the time of Open.
func (f *File) Size() int64 { return f.size }

// ReadAt copies bytes from offset off to dst, as io.ReaderAt specifies. It returns fewer than
// len(dst) bytes only with an error, which is io.EOF at the end of the file. Other errors contain
// the path and leave dst undefined: fs.ErrClosed after Close, ErrShrunk, or an error of the disk.
func (f *File) ReadAt(dst []byte, off int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: fs.ErrClosed}
	case off < 0:
		return 0, fmt.Errorf("read %s: offset %d is negative", f.path, off)
	case len(dst) == 0:
		return 0, nil
	case off >= f.size:
		return 0, io.EOF
	}
	n := int(min(int64(len(dst)), f.size-off))
	if err := f.copyTo(dst[:n], off); err != nil {
		return 0, fmt.Errorf("read %s: at %d: %w", f.path, off, err)
	}
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

// Section returns a reader of n bytes from offset off that does not use the mapping. Data that is
// read once, from beginning to end, then does not add to the memory of this process. The reader
// must not be used after Close.
func (f *File) Section(off, n int64) io.Reader { return io.NewSectionReader(f.file, off, n) }

// Records returns the part of the file that begins at offset first and holds count records of size
// bytes each. The result owns the file. Records panics if the file is too short: callers validate
// the file's header first, so this is a mistake in the program.
func (f *File) Records(first int64, size, count int) *Records {
	if first < 0 || size < 0 || count < 0 || first > f.size || size > 0 && int64(count) > (f.size-first)/int64(size) {
		panic(fmt.Sprintf("mmap: %d records of %d bytes from byte %d on do not fit in the %d bytes of %s", count, size, first, f.size, f.path))
	}
	return &Records{file: f, first: first, size: size, count: count}
}

// WillNeed advises the system that the given ranges, [first, end) in bytes, will be read soon
// (readahead). It does not wait for the data, but it may wait for the disk's queue, until ctx
// ends. Ranges may overlap, be empty or extend beyond the file. Errors are ignored: a later read
// will return them.
func (f *File) WillNeed(ctx context.Context, ranges [][2]int64) {
	for _, r := range pages(ranges, int64(os.Getpagesize()), f.size) {
		if ctx.Err() != nil {
			return
		}
		f.advise(r)
	}
}

// advise requests one range of pages. It takes the lock for each range, so that Close need not wait
// for all ranges.
func (f *File) advise(r [2]int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.closed {
		f.readAhead(r)
	}
}

// Close waits for reads under way and unmaps the file. Later reads fail. A second call returns
// fs.ErrClosed.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	f.closed = true
	return errors.Join(f.unmap(), f.file.Close())
}

// pages returns the pages of a file of the given size that the ranges touch, as a minimal list of
// byte ranges in ascending order. All bounds are multiples of page, except that the last end may be
// the end of the file. A minimal list saves system calls: random samples often lie in the same
// pages.
func pages(ranges [][2]int64, page, size int64) [][2]int64 {
	var whole [][2]int64
	for _, r := range ranges {
		first, end := max(r[0], 0), min(r[1], size)
		if first >= end {
			continue
		}
		last := end - 1
		whole = append(whole, [2]int64{first - first%page, min(last-last%page+page, size)})
	}
	slices.SortFunc(whole, func(a, b [2]int64) int { return int(min(max(a[0]-b[0], -1), 1)) })
	merged := whole[:0]
	for _, r := range whole {
		if n := len(merged); n > 0 && r[0] <= merged[n-1][1] {
			merged[n-1][1] = max(merged[n-1][1], r[1])
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
