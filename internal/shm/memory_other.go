//go:build !linux

package shm

import "os"

// Memory is a file without a name that is mapped into this process.
type Memory struct{}

// NewMemory returns ErrUnsupported.
func NewMemory(int) (*Memory, error) { return nil, ErrUnsupported }

// newMemory and the methods below return ErrUnsupported, so that Arena compiles everywhere.
func newMemory(int) (*Memory, error) { return nil, ErrUnsupported }

// Open closes the file and returns ErrUnsupported.
func Open(file *os.File) (*Memory, error) {
	_ = file.Close() // an error loses nothing, as nothing was written
	return nil, ErrUnsupported
}

func openAgain(*os.File) (*Memory, error) { return nil, ErrUnsupported }

func (m *Memory) reserve(int, int) error { return ErrUnsupported }

func (m *Memory) again() (*Memory, error) { return nil, ErrUnsupported }

func (m *Memory) detach(int, int) error { return ErrUnsupported }

func (m *Memory) release(int, int) error { return ErrUnsupported }

// Bytes returns nil.
func (m *Memory) Bytes() []byte { return nil }

// File returns nil.
func (m *Memory) File() *os.File { return nil }

// Close does nothing.
func (m *Memory) Close() error { return nil }
