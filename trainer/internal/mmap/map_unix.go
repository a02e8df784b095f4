//go:build unix && !aix && !solaris

package mmap

import (
	"fmt"
	"os"
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

// Shared maps the first size bytes of a file that another process has passed on, for reading and
// writing, until the end of this process: changes are seen by all who map the file. The file must
// not become shorter. size is above 0.
func Shared(file *os.File, size int) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < int64(size) {
		return nil, fmt.Errorf("map %s: it has %d bytes, want %d", file.Name(), info.Size(), size)
	}
	b, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s: %w", size, file.Name(), err)
	}
	return b, nil
}

// unmap ends the mapping. The caller holds the write lock.
func (f *File) unmap() error {
	data := f.data
	f.data = nil
	if data == nil {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmap %s: %w", f.path, err)
	}
	return nil
}

// copyTo copies from the mapping. Access to a page beyond the end of the file, or to a page that
// the disk cannot read, raises SIGBUS. During the copy the runtime turns this into a panic of this
// goroutine only.
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

// faulted returns the error for a panic of copyTo. It panics again if the panic was not a fault.
func (f *File) faulted(p any) error {
	// The runtime documents the Addr method for its error of a memory fault
	// (debug.SetPanicOnFault). No other runtime error has it.
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
		return fmt.Errorf("the file has %d bytes and had %d: %w", info.Size(), f.size, ErrShrunk)
	}
	return fmt.Errorf("the disk cannot read the page: %w", fault)
}

// readAhead advises the system to read a range that begins at a page boundary. Pages in the cache
// cost only a lookup.
func (f *File) readAhead(r [2]int64) {
	_ = unix.Madvise(f.data[r[0]:r[1]], unix.MADV_WILLNEED) // advice: errors do not matter
}
