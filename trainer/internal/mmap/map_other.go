//go:build !unix || aix || solaris

package mmap

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// mapAll does nothing: there is no mapping.
func (f *File) mapAll() error { return nil }

// Shared returns an error that wraps errors.ErrUnsupported.
func Shared(file *os.File, _ int) ([]byte, error) {
	return nil, fmt.Errorf("map %s: %w", file.Name(), errors.ErrUnsupported)
}

// unmap does nothing.
func (f *File) unmap() error { return nil }

// copyTo reads from the file by a system call.
func (f *File) copyTo(dst []byte, off int64) error {
	_, err := f.file.ReadAt(dst, off)
	// ReadAt has checked the range, so the file has become shorter.
	if errors.Is(err, io.EOF) {
		return ErrShrunk
	}
	return err
}

// readAhead does nothing: there is no such advice.
func (f *File) readAhead([2]int64) {}
