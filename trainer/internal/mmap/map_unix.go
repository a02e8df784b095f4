//go:build unix && !aix && !solaris

package mmap

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// mapAll maps the whole file. Empty files have no mapping.
func (f *File) mapAll() (err error) {
	if f.size > 0 {
		f.data, err = unix.Mmap(int(f.file.Fd()), 0, int(f.size), unix.PROT_READ, unix.MAP_SHARED)
	}
	return err
}

// unmap ends the mapping. The caller holds the lock.
func (f *File) unmap() error {
	data := f.data
	if f.data = nil; data == nil {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmap %s: %w", f.path, err)
	}
	return nil
}

// copyTo copies from the mapping. A page that the file has no more, or that the disk
// cannot read, is a fault of the processor (SIGBUS). For the time of the copy the runtime
// makes a panic of it, in this goroutine only.
func (f *File) copyTo(dst []byte, off int64) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			err = f.faulted(p)
		}
	}()
	copy(dst, f.data[off:])
	return nil
}

// faulted returns the error for a panic of copyTo. Panics that are no fault go on.
func (f *File) faulted(p any) error {
	// Only what the runtime makes of a fault has an address; a nil pointer has none.
	fault, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		panic(p)
	}
	info, err := f.file.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() < f.size:
		return fmt.Errorf("%d bytes where there were %d: %w", info.Size(), f.size, ErrShrunk)
	}
	return fmt.Errorf("the disk cannot read it: %w", fault)
}

// readAhead asks the system to read a range that begins at a page. What is there already
// costs a look-up.
func (f *File) readAhead(r [2]int64) {
	_ = unix.Madvise(f.data[r[0]:r[1]], unix.MADV_WILLNEED) // advice only
}
