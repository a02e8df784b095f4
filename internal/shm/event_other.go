//go:build !linux

package shm

import "os"

// eventFile is empty, as only Linux has segments between processes.
type eventFile struct{}

// NewEvent returns ErrUnsupported.
func NewEvent() (*Event, error) { return nil, ErrUnsupported }

// File returns nil.
func (e *Event) File() *os.File { return nil }

// Close does nothing.
func (e *Event) Close() error { return nil }

// Waker signals the Event of another process.
type Waker struct{}

// OpenWaker closes the file and returns ErrUnsupported.
func OpenWaker(file *os.File) (*Waker, error) {
	_ = file.Close() // an error loses nothing, as nothing was written
	return nil, ErrUnsupported
}

// Again returns ErrUnsupported.
func (e *Event) Again() (*os.File, error) { return nil, ErrUnsupported }

// Again returns ErrUnsupported.
func (w *Waker) Again() (*os.File, error) { return nil, ErrUnsupported }

func (w *Waker) signal() {}

// Close does nothing.
func (w *Waker) Close() error { return nil }
