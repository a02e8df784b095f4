// Package mmap reads files through a mapping into memory: opening one copies
// nothing, a read costs no system call, and the pages that have been read belong to the
// file. All processes of a host share them, and the system takes them back when memory
// is short.
//
//	f, err := mapped.Open("train-images-idx3-ubyte")
//	defer f.Close()
//	n, err := f.ReadAt(buf, 16)                        // an io.ReaderAt
//	f.WillNeed(ctx, [][2]int64{{1 << 20, 1<<20 + 784}}) // read it ahead of its use
//
// Data sets are made of Records, pieces of one size of a file or of memory.
//
// # Files that change
//
// A mapping shows the file as it is at that time. A file that becomes shorter makes the
// processor fault, which ends a process that is not prepared; here the read returns
// ErrShrunk. That is found for whole pages: between the new end and the end of its page
// there are zeros. So replace a file by renaming another one over it, which leaves those
// that have the old one open alone.
//
// Where the system has no mappings that Go knows, the file is read in the usual way, and
// all of the above but the speed holds.
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

// ErrShrunk is in the error of a read from a file that has become shorter since it was
// opened.
var ErrShrunk = errors.New("the file has become shorter since it was opened; leave data alone while it is in use, and replace it by renaming")

// File is a file opened for reading. It is safe for concurrent use.
type File struct {
	path string
	size int64
	file *os.File

	mu     sync.RWMutex // read-locked while data is looked at: Close takes it away
	data   []byte       // the mapping, if there is one
	closed bool
}

// Open opens the file at path, which must be a regular one. Its size is taken once. The
// caller has to close it. Errors name operation and path.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err // an *os.PathError
	}
	f := &File{path: path, file: file}
	if err := f.begin(); err != nil {
		_ = file.Close() // nothing has been written to it
		return nil, err
	}
	return f, nil
}

// begin looks at the file and maps it.
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
		return fmt.Errorf("map %s: %d bytes do not fit the addresses of this system", f.path, f.size)
	}
	if err := f.mapAll(); err != nil {
		return fmt.Errorf("map %s: %w", f.path, err)
	}
	return nil
}

// Path is the path with which the file was opened.
func (f *File) Path() string { return f.path }

// Size is the number of bytes that the file had when it was opened.
func (f *File) Size() int64 { return f.size }

// ReadAt copies the bytes from off on to dst, as io.ReaderAt has it: fewer than len(dst)
// only with an error, which is io.EOF at the end of the file. Other errors name the
// path; they are fs.ErrClosed after Close, ErrShrunk, or what the disk says, and leave
// dst undefined.
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

// Section returns a reader of n bytes from off on that leaves the mapping alone: what is
// read once, from beginning to end, does not add to the memory of this process. It is of
// no use after Close.
func (f *File) Section(off, n int64) io.Reader { return io.NewSectionReader(f.file, off, n) }

// WillNeed tells the system that the given ranges, [first, end) in bytes, will be read
// soon. It does not wait for them, but it may for its turn at the disk, until ctx ends.
// Ranges may overlap, be empty or reach over the end. It is advice: if something is wrong
// with the file, a read will tell.
func (f *File) WillNeed(ctx context.Context, ranges [][2]int64) {
	for _, r := range pages(ranges, int64(os.Getpagesize()), f.size) {
		if ctx.Err() != nil {
			return
		}
		f.advise(r)
	}
}

// advise asks for one range of pages. The lock is taken for each, so that Close does not
// wait for all.
func (f *File) advise(r [2]int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.closed {
		f.readAhead(r)
	}
}

// Close ends the mapping. Reads under way come to their end before, later ones fail. The
// second call returns fs.ErrClosed.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	f.closed = true
	return errors.Join(f.unmap(), f.file.Close())
}

// pages returns the pages that the ranges touch of a file of the given size, as ranges of
// bytes: as few as possible, in ascending order, with bounds that are multiples of page
// but for the last end, which may be that of the file.
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
