//go:build !linux

package shm

import "os"

// outside is empty: there are no segments between processes.
type outside struct{}

// NewBell returns ErrUnsupported.
func NewBell() (*Bell, error) { return nil, ErrUnsupported }

// File returns nil.
func (b *Bell) File() *os.File { return nil }

// Close does nothing.
func (b *Bell) Close() error { return nil }

// Rope rings the bell of another process.
type Rope struct{}

// TakeRope closes the file and returns ErrUnsupported.
func TakeRope(file *os.File) (*Rope, error) {
	_ = file.Close() // nothing was written to it
	return nil, ErrUnsupported
}

func (r *Rope) ring() {}

// Close does nothing.
func (r *Rope) Close() error { return nil }
